//! A small DNS client: what `dig +subnet` would show, for the check to judge.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use hickory_proto::rr::{Name, RData, RecordType};
use ipnet::IpNet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::layout::host_named;

/// How long the redirector may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What to ask.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    name: String,
    kind: RecordType,
    subnet: Option<IpNet>,
}

impl Question {
    /// Addresses of IPv4, without a client subnet.
    pub(crate) fn a(name: &str) -> Self {
        Self { name: name.to_owned(), kind: RecordType::A, subnet: None }
    }

    /// Addresses of the subnet's own family, on behalf of `subnet` (RFC 7871).
    pub(crate) fn for_client(name: &str, subnet: IpNet) -> Self {
        let kind = if subnet.addr().is_ipv4() { RecordType::A } else { RecordType::AAAA };
        Self { name: name.to_owned(), kind, subnet: Some(subnet) }
    }

    fn encode(&self, id: u16) -> Result<Vec<u8>> {
        let mut message = Message::query();
        message.metadata.id = id;
        message.metadata.op_code = OpCode::Query;
        let name = Name::from_ascii(format!("{}.", self.name)).context("not a DNS name")?;
        message.add_query(Query::query(name, self.kind));
        if let Some(subnet) = self.subnet {
            let mut edns = Edns::new();
            edns.set_max_payload(1232);
            let option = ClientSubnet::new(subnet.network(), subnet.prefix_len(), 0);
            edns.options_mut().insert(EdnsOption::Subnet(option));
            message.set_edns(edns);
        }
        message.to_vec().context("cannot encode the query")
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) rcode: ResponseCode,
    pub(crate) addresses: Vec<IpAddr>,
    /// Scope of the client subnet, where one came back.
    pub(crate) scope: Option<u8>,
}

impl Answer {
    fn decode(bytes: &[u8], id: u16) -> Result<Self> {
        let message = Message::from_vec(bytes).context("ns1 answered something else than DNS")?;
        if message.metadata.id != id || message.metadata.truncation {
            bail!("ns1 answered another query, or truncated");
        }
        let addresses = message.answers.iter().filter_map(|record| match record.data {
            RData::A(a) => Some(IpAddr::V4(a.0)),
            RData::AAAA(a) => Some(IpAddr::V6(a.0)),
            _ => None,
        });
        let subnet = message.edns.as_ref().and_then(|edns| edns.option(EdnsCode::Subnet));
        let scope = match subnet {
            Some(EdnsOption::Subnet(subnet)) => Some(subnet.scope_prefix()),
            _ => None,
        };
        Ok(Self { rcode: message.metadata.response_code, addresses: addresses.collect(), scope })
    }

    /// The one address of the answer.
    pub(crate) fn address(&self) -> Result<IpAddr> {
        match self.addresses[..] {
            [address] => Ok(address),
            _ => bail!("{} with {} addresses instead of one", self.rcode, self.addresses.len()),
        }
    }
}

fn server() -> SocketAddr {
    host_named("ns1").address()
}

/// Asks the redirector over UDP.
pub(crate) async fn ask_udp(question: &Question) -> Result<Answer> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.context("cannot open a UDP socket")?;
    socket.connect(server()).await.context("cannot reach ns1")?;
    ask_on(&socket, question, 1).await
}

/// Asks over a connected socket that is used again and again; `id` tells the answers apart.
pub(crate) async fn ask_on(socket: &UdpSocket, question: &Question, id: u16) -> Result<Answer> {
    socket.send(&question.encode(id)?).await.context("cannot send to ns1")?;
    let mut buffer = [0; 1232];
    let received = tokio::time::timeout(TIMEOUT, socket.recv(&mut buffer)).await;
    let length = received.context("no answer from ns1 over UDP")?.context("cannot hear ns1")?;
    Answer::decode(&buffer[..length], id)
}

/// A socket for [`ask_on`].
pub(crate) async fn socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.context("cannot open a UDP socket")?;
    socket.connect(server()).await.context("cannot reach ns1")?;
    Ok(socket)
}

/// Asks the redirector over TCP.
pub(crate) async fn ask_tcp(question: &Question) -> Result<Answer> {
    let query = question.encode(2)?;
    let exchange = async {
        let mut stream = TcpStream::connect(server()).await?;
        stream.write_u16(u16::try_from(query.len()).unwrap_or(u16::MAX)).await?;
        stream.write_all(&query).await?;
        let mut answer = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(TIMEOUT, exchange).await;
    Answer::decode(
        &answer.context("no answer from ns1 over TCP")?.context("cannot ask ns1 by TCP")?,
        2,
    )
}
