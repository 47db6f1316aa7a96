//! One probe, against every kind of node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use health_proto::probe::{Expect, HttpQuestion, Method, Place, RecordKind, Scheme, Sha256};
use health_proto::{Failure, Probe, Question, Target};

use super::fake::{Mood, Node};
use crate::ProbeParams;
use crate::probe::{PAGE_BYTES_MAX, Prober, ProberError};

fn prober(node: &Node) -> Prober {
    let connect_to = BTreeMap::from([(address(), node.address())]);
    let contact = Some("https://noc.example/".to_owned());
    Prober::new(ProbeParams { connect_to, contact, ..ProbeParams::default() }).unwrap()
}

/// A probe of the node, for its health page.
fn page(timeout_ms: u64) -> Probe {
    let target = Target::Node { node: "a".parse().unwrap(), address: address() };
    let question = HttpQuestion {
        scheme: Scheme::Http,
        method: Method::Get,
        host: "[2001:db8::7]".into(),
        sni: None,
        path: "/.well-known/cacheboy/health".into(),
        range: None,
        hash: false,
        expect: Expect::default(),
    };
    let place = Place::Address((address(), 80).into());
    Probe { id: 1, target, place, question: Question::Http(question), timeout_ms }
}

/// A probe for something of a project there.
fn of_project(question: Question) -> Probe {
    let name = |text: &str| text.parse().unwrap();
    let (project, node, check) = (name("x"), name("a"), name("c"));
    let target = Target::Project { project, node, address: address(), check };
    Probe { target, question, ..page(10_000) }
}

async fn failure(prober: &Prober, probe: &Probe) -> Option<Failure> {
    prober.probe(probe).await.err().map(|failed| failed.failure)
}

fn address() -> IpAddr {
    "2001:db8::7".parse().unwrap()
}

fn with_body(bytes: usize) -> Mood {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
    Mood::says([head.as_bytes(), &vec![b'x'; bytes]].concat())
}

#[tokio::test]
async fn each_kind_of_answer_has_its_word() {
    let mut node = Node::new(Mood::well()).await;
    let prober = prober(&node);
    let too_large = Failure::TooLarge { bytes_max: PAGE_BYTES_MAX };
    for (mood, expected) in [
        (Mood::well(), None),
        (Mood::says("HTTP/1.0 200 OK\r\n\r\nup until the end"), None),
        (with_body(PAGE_BYTES_MAX), None),
        (with_body(PAGE_BYTES_MAX + 1), Some(too_large)),
        (Mood::says("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"), Some(Failure::Status(503))),
        (Mood::says("HTTP/1.1 204 None\r\n\r\n"), Some(Failure::Status(204))),
        (
            Mood::says("HTTP/1.1 301 Gone\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"),
            Some(Failure::Status(301)),
        ),
        (Mood::says("SSH-2.0-OpenSSH_9.2\r\n\r\n"), Some(Failure::NotHttp)),
        (
            Mood::says("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
            Some(Failure::NotHttp),
        ),
        (Mood::says(""), Some(Failure::Closed)),
        (Mood::says("HTTP/1.1 200 OK\r\nconten"), Some(Failure::Closed)),
        (Mood::says("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"), Some(Failure::Closed)),
    ] {
        node.feels(mood.clone()).await;
        assert_eq!(failure(&prober, &page(10_000)).await, expected, "{mood:?}");
    }
    node.refuses().await;
    assert_eq!(failure(&prober, &page(10_000)).await, Some(Failure::Refused));
}

#[tokio::test]
async fn the_timeout_covers_the_whole_answer_and_closes_the_connection() {
    let mut node = Node::new(Mood::Hangs(Vec::new())).await;
    let prober = prober(&node);
    let silent = Some(Failure::NoAnswer { timeout_ms: 50 });
    for part in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n1"] {
        node.feels(Mood::Hangs(part.into())).await;
        assert_eq!(failure(&prober, &page(50)).await, silent, "{part:?}");
        while node.seen.recv().await.unwrap() != "gone" {}
    }
}

#[tokio::test]
async fn the_request_is_for_the_address_in_the_map_over_the_address_it_is_mapped_to() {
    let mut node = Node::new(Mood::well()).await;
    prober(&node).probe(&page(10_000)).await.unwrap();
    let head = node.seen.recv().await.unwrap();
    assert!(head.starts_with("GET /.well-known/cacheboy/health HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nhost: [2001:db8::7]\r\n"), "{head}");
    assert!(head.contains("\r\nuser-agent: cacheboy-health/"), "{head}");
    assert!(head.contains(" (+https://noc.example/)\r\n"), "{head}");
}

/// A question for 4 bytes of a canary, that must be `good`.
fn canary() -> HttpQuestion {
    let Question::Http(page) = page(10_000).question else { unreachable!() };
    // Of "good".
    let sha256 = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c";
    let sha256 = Some(sha256.parse::<Sha256>().unwrap());
    let expect = Expect { status: 206, length: Some(4), sha256 };
    let host = "files.example".into();
    HttpQuestion { host, path: "/canary".into(), range: Some((0, 3)), expect, ..page }
}

#[tokio::test]
async fn of_a_canary_status_length_and_bytes_are_compared() {
    let mut node = Node::new(Mood::well()).await;
    let prober = prober(&node);
    let probe = of_project(Question::Http(canary()));
    let say = |body: &str| {
        let length = body.len();
        Mood::says(format!(
            "HTTP/1.1 206 Partial\r\ncontent-length: {length}\r\netag: \"e\"\r\n\
             content-range: bytes 0-3/9000\r\n\r\n{body}"
        ))
    };
    node.feels(say("good")).await;
    let passed = prober.probe(&probe).await.unwrap();
    assert_eq!((passed.seen.status, passed.seen.length), (Some(206), Some(9000)));
    assert_eq!(passed.seen.etag.as_deref(), Some("\"e\""));
    let head = node.seen.recv().await.unwrap();
    assert!(head.contains("\r\nhost: files.example\r\n"), "{head}");
    assert!(head.contains("\r\nrange: bytes=0-3\r\n"), "{head}");

    node.feels(say("evil")).await;
    let failed = prober.probe(&probe).await.unwrap_err();
    assert_eq!(failed.failure.word(), "hash");
    assert!(failed.evidence.request.starts_with("GET /canary HTTP/1.1\n"), "{failed:?}");
    assert!(failed.evidence.response.ends_with("\nevil"), "{failed:?}");
    node.feels(say("goo")).await;
    let short = Failure::Length { expected: 4, found: 3 };
    assert_eq!(failure(&prober, &probe).await, Some(short));
    node.feels(say(&"good".repeat(1000))).await;
    let long = Failure::Length { expected: 4, found: 4000 };
    assert_eq!(failure(&prober, &probe).await, Some(long));
    node.feels(Mood::says("HTTP/1.1 404 None\r\ncontent-length: 0\r\n\r\n")).await;
    assert_eq!(failure(&prober, &probe).await, Some(Failure::Status(404)));

    let head = HttpQuestion { method: Method::Head, expect: Expect::default(), ..canary() };
    node.feels(Mood::says("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n")).await;
    let passed = prober.probe(&of_project(Question::Http(head))).await.unwrap();
    assert_eq!((passed.seen.length, passed.seen.sha256), (Some(7), None));
}

#[tokio::test]
async fn a_port_is_open_or_not() {
    let mut node = Node::new(Mood::well()).await;
    let (prober, probe) = (prober(&node), of_project(Question::Tcp));
    assert_eq!(failure(&prober, &probe).await, None);
    node.refuses().await;
    assert_eq!(failure(&prober, &probe).await, Some(Failure::Refused));
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused() {
    let refused = |params| Prober::new(params).unwrap_err();
    for path in ["", "health", "@evil.example/", "/a b"] {
        let params = ProbeParams { path: path.into(), ..ProbeParams::default() };
        assert!(matches!(refused(params), ProberError::Path(_)), "{path}");
    }
    let params = ProbeParams { contact: Some("a\nb".into()), ..ProbeParams::default() };
    assert!(matches!(refused(params), ProberError::Contact(_)));
    let params = ProbeParams { ca: Some("/nowhere.pem".into()), ..ProbeParams::default() };
    assert!(matches!(refused(params), ProberError::Ca(_)));
}

/// Answers each query with the code, and with an address if that is 0.
async fn dns_server(code: u8) -> std::net::SocketAddr {
    let socket = tokio::net::UdpSocket::bind("127.55.0.2:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let mut answer = buffer[..length].to_vec();
            (answer[2], answer[3]) = (0x84, code);
            if code == 0 {
                answer[7] = 1;
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
            }
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn a_dns_node_must_answer_with_records() {
    let prober = Prober::new(ProbeParams::default()).unwrap();
    let ask = |at, kind| {
        let name = "x.cdn.example".parse().unwrap();
        let question = Question::Dns { name, kind };
        let target = Target::Redirector { name: "ns1".parse().unwrap() };
        Probe { target, place: Place::Address(at), question, ..page(5_000) }
    };
    let (good, refusing) = (dns_server(0).await, dns_server(5).await);
    assert_eq!(failure(&prober, &ask(good, RecordKind::A)).await, None);
    let wrong = failure(&prober, &ask(good, RecordKind::Aaaa)).await;
    assert_eq!(wrong, Some(Failure::Dns("no records of type AAAA".into())));
    let refused = failure(&prober, &ask(refusing, RecordKind::A)).await.unwrap();
    assert_eq!(refused.word(), "dns");
}
