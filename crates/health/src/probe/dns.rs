//! One query of DNS over UDP.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use health_proto::Failure;
use health_proto::probe::RecordKind;
use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use model::HostName;
use rt::clock;
use tokio::net::UdpSocket;

use super::{Trail, unreachable};

/// A query or its answer may get lost on the way: it is asked again after this time.
const AGAIN: Duration = Duration::from_millis(700);
/// Longest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 4096;

/// Asks the server for records of `name`; there must be some, of that type, with authority.
pub(super) async fn ask(
    at: SocketAddr,
    name: &HostName,
    kind: RecordKind,
    trail: &mut Trail,
) -> Result<(), Failure> {
    let kind = match kind {
        RecordKind::Soa => RecordType::SOA,
        RecordKind::A => RecordType::A,
        RecordKind::Aaaa => RecordType::AAAA,
    };
    let wrong = |why: &dyn ToString| Failure::Dns(why.to_string());
    let name = Name::from_ascii(format!("{name}.")).map_err(|error| wrong(&error))?;
    let id = u16::try_from(clock::dice().below(1 << 16)).unwrap_or_default();
    trail.request = format!("{name} {kind}").into_bytes();
    let mut query = Message::query();
    query.metadata.id = id;
    query.metadata.op_code = OpCode::Query;
    query.add_query(Query::query(name, kind));
    let bytes = query.to_vec().map_err(|error| wrong(&error))?;
    let own: SocketAddr = match at {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own).await.map_err(|error| unreachable(&error))?;
    socket.connect(at).await.map_err(|error| unreachable(&error))?;
    let mut buffer = vec![0; ANSWER_BYTES_MAX];
    loop {
        socket.send(&bytes).await.map_err(|error| unreachable(&error))?;
        let Ok(received) = tokio::time::timeout(AGAIN, socket.recv(&mut buffer)).await else {
            continue;
        };
        let length = received.map_err(|error| unreachable(&error))?;
        let answer = buffer.get(..length).and_then(|bytes| Message::from_vec(bytes).ok());
        let Some(answer) = answer else { return Err(wrong(&"the answer is not DNS")) };
        // What answers an earlier query of another probe is none to this one.
        if answer.metadata.id == id {
            let records = answer.answers.iter().map(|record| format!("{record}\n"));
            trail.response = records.collect::<String>().into_bytes();
            return judge(&answer, kind);
        }
    }
}

fn judge(answer: &Message, kind: RecordType) -> Result<(), Failure> {
    if answer.metadata.response_code != ResponseCode::NoError {
        return Err(Failure::Dns(answer.metadata.response_code.to_string()));
    }
    if !answer.answers.iter().any(|record| record.record_type() == kind) {
        return Err(Failure::Dns(format!("no records of type {kind}")));
    }
    if !answer.metadata.authoritative {
        return Err(Failure::Dns("not answered with authority".into()));
    }
    Ok(())
}
