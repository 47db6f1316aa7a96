//! Makes a client come from an address of its own: all clients of a test are on one machine.

use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Takes connections at a port of its own and carries them on from another address.
pub(crate) struct StandIn {
    address: SocketAddr,
    /// Its connections end with it.
    _runtime: Runtime,
}

impl StandIn {
    /// Stands between a client and `to`; the client seems to be `from`.
    pub(crate) fn start(from: IpAddr, to: SocketAddr) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, from, to));
            }
        });
        Self { address, _runtime: runtime }
    }

    /// Where the client connects to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn carry(mut client: TcpStream, from: IpAddr, to: SocketAddr) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut edge = socket.connect(to).await?;
    tokio::io::copy_bidirectional(&mut client, &mut edge).await?;
    Ok(())
}
