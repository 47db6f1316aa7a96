//! A node that does as it is told.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

/// What the node does with a probe.
#[derive(Clone, Debug)]
pub(crate) enum Mood {
    /// Sends these bytes after the request's head, then closes.
    Says(Vec<u8>),
    /// Sends these bytes and then nothing more, and keeps the connection.
    Hangs(Vec<u8>),
}

impl Mood {
    pub(crate) fn says(bytes: impl AsRef<[u8]>) -> Self {
        Self::Says(bytes.as_ref().to_vec())
    }

    pub(crate) fn well() -> Self {
        Self::says("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nup\n")
    }
}

/// A node at one address, which it keeps while it refuses: other tests take ports of 127.0.0.1.
pub(crate) struct Node {
    address: SocketAddr,
    task: Option<JoinHandle<()>>,
    mood: Arc<Mutex<Mood>>,
    heads: mpsc::UnboundedSender<String>,
    /// Request heads as they came, and `gone` whenever the other end closed on a hanging node.
    pub(crate) seen: mpsc::UnboundedReceiver<String>,
}

impl Node {
    pub(crate) async fn new(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.55.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, seen) = mpsc::unbounded_channel();
        let mut node = Self { address, task: None, mood: Arc::new(Mutex::new(mood)), heads, seen };
        node.answer_on(listener);
        node
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn feels(&mut self, mood: Mood) {
        *self.mood.lock().await = mood;
        if self.task.is_none() {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(self.address).unwrap();
            self.answer_on(socket.listen(64).unwrap());
        }
    }

    /// Closes the listener: connections are refused from now on.
    pub(crate) async fn refuses(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }

    fn answer_on(&mut self, listener: TcpListener) {
        let (mood, heads) = (self.mood.clone(), self.heads.clone());
        self.task = Some(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mood = mood.lock().await.clone();
                tokio::spawn(answer(stream, mood, heads.clone()));
            }
        }));
    }
}

async fn answer(mut stream: TcpStream, mood: Mood, heads: mpsc::UnboundedSender<String>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let _ = heads.send(String::from_utf8(head).unwrap());
    match mood {
        Mood::Says(bytes) => {
            let _ = stream.write_all(&bytes).await;
        }
        Mood::Hangs(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.read_u8().await;
            let _ = heads.send("gone".into());
        }
    }
}
