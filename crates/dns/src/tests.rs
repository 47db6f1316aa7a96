//! The role over real sockets on loopback.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dns_proto::Manners;
use hickory_proto::op::Message;
use ipnet::IpNet;
use locate::Evidence;
use locate::mmdb_write::Writer;
use model::CountryCode;
use nodemap::NodeMap;
use rt::Context;
use rt::steering::{self, LocationParams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::proxy::Proxies;
use crate::{Dns, Error, Params, shared::Shared, tcp};

mod log;

/// A node map with one project, whose clients in Germany go to `198.51.100.GERMANY`.
fn node_map(generation: u64, germany: u8) -> Arc<NodeMap> {
    let text = format!(
        r#"
        [site.a]
        [node.de]
        site = "a"
        addresses = ["198.51.100.{germany}"]
        [node.us]
        site = "a"
        addresses = ["198.51.100.201"]
        [pool]
        europe = {{ de = 1 }}
        world = {{ us = 1 }}
        [map.default]
        default = ["world"]
        country = {{ DE = ["europe"] }}
        [zone."cdn.example"]
        ns = ["ns1.dns.example"]
        soa = {{ contact = "noc.cdn.example", negative_ttl_s = 60 }}
        ttl_s = 3600
        [project.p]
        name = "p.cdn.example"
        hosts = ["p.example"]
        map = "default"
        ttl_s = 60
        [project.p.master.m]
        url = "http://192.0.2.1"
        "#
    );
    let map = nodemap::admin::load(&[(PathBuf::from("test.toml"), text)]).unwrap();
    let states = map.nodes.keys().map(|name| (name.clone(), Default::default()));
    let states = BTreeMap::from_iter(states);
    Arc::new(NodeMap::new(generation, "test", map, states))
}

/// A zone file whose `www` has the address 192.0.2.`last`.
fn static_zone(last: u8) -> Vec<u8> {
    format!("@ SOA ns1 noc 1 2 3 4 5\n NS ns1.dns.example.\nwww 60 A 192.0.2.{last}\n").into_bytes()
}

/// Writes a database that puts `prefix` into Germany.
fn write_database(path: &Path, prefix: &str) {
    let country: CountryCode = "DE".parse().unwrap();
    let evidence = Evidence { asn: None, country: Some(country), continent: country.continent() };
    let mut writer = Writer::new("Test", "test", 0);
    let net: IpNet = prefix.parse().unwrap();
    writer.insert(net, &locate::testing::record(evidence, None));
    rt::file::write_atomic(path, &writer.finish()).unwrap();
}

struct Running {
    address: SocketAddr,
    maps: watch::Sender<Option<Arc<NodeMap>>>,
    context: Context,
    task: JoinHandle<Result<(), Error>>,
    database: PathBuf,
    _dir: tempfile::TempDir,
}

fn context(state_dir: &Path) -> Context {
    Context::new("test".parse().unwrap(), state_dir.to_owned())
}

impl Running {
    /// A server that knows that 192.0.2.0/24 is in Germany.
    async fn start(map: Option<Arc<NodeMap>>) -> Self {
        Self::start_with(map, |params| params).await
    }

    async fn start_with(map: Option<Arc<NodeMap>>, change: impl FnOnce(Params) -> Params) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("country.mmdb");
        write_database(&database, "192.0.2.0/24");
        let (maps, following) = watch::channel(map);
        let context = context(dir.path());
        let zones = dir.path().join("zones");
        std::fs::create_dir(&zones).unwrap();
        rt::file::write_atomic(&zones.join("static.example.zone"), &static_zone(1)).unwrap();
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let udp_threads = Some(2);
        let params = Params { udp_threads, zone_files: Some(zones), ..Params::new(listen) };
        let params = change(params);
        let location = LocationParams {
            country: Some(database.clone()),
            move_percent: Some(100),
            ..<_>::default()
        };
        let watched = steering::start(location, following, &context).await.unwrap();
        let dns = Dns::bind(params, watched, context.clone()).await.unwrap();
        let address = dns.addresses()[0];
        Self { address, maps, context, task: tokio::spawn(dns.serve()), database, _dir: dir }
    }

    async fn udp(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(self.address).await.unwrap();
        socket
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Asks over UDP for the steered name as a German client until `wanted` is the answer, and
    /// gives every answer on the way.
    async fn until(&self, wanted: &str) -> Vec<String> {
        self.until_of("p.cdn.example", wanted).await
    }

    /// The same for another name.
    async fn until_of(&self, name: &str, wanted: &str) -> Vec<String> {
        let socket = self.udp().await;
        let mut seen = Vec::new();
        loop {
            let answer = ask_udp(&socket, &query(name, Some([192, 0, 2]))).await;
            let reached = answer == wanted;
            seen.push(answer);
            if reached {
                return seen;
            }
        }
    }

    async fn stop(self) {
        self.context.shutdown.end_soon();
        self.task.await.unwrap().unwrap();
    }
}

/// A query for A with an OPT record and, if given, the client subnet of a /24.
fn query(name: &str, subnet: Option<[u8; 3]>) -> Vec<u8> {
    let mut bytes = vec![0xab, 0xcd, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    let option = subnet.map(|[a, b, c]| [0, 8, 0, 7, 0, 1, 24, 0, a, b, c]);
    let option = option.as_ref().map_or(&[][..], |option| &option[..]);
    bytes.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0]);
    bytes.push(u8::try_from(option.len()).unwrap());
    bytes.extend(option);
    bytes
}

/// The addresses of a reply, or its response code.
fn read(reply: &[u8]) -> String {
    let reply = Message::from_vec(reply).unwrap();
    assert_eq!(reply.metadata.id, 0xabcd);
    let addresses: Vec<String> = reply.answers.iter().map(|r| r.data.to_string()).collect();
    if addresses.is_empty() {
        reply.metadata.response_code.to_string()
    } else {
        addresses.join(" ")
    }
}

async fn ask_udp(socket: &UdpSocket, query: &[u8]) -> String {
    let mut buffer = [0; 2048];
    socket.send(query).await.unwrap();
    let received = tokio::time::timeout(Duration::from_secs(20), socket.recv(&mut buffer)).await;
    let length = received.expect("no query is lost").unwrap();
    read(&buffer[..length])
}

async fn read_tcp(stream: &mut TcpStream) -> String {
    let length = stream.read_u16().await.unwrap();
    let mut reply = vec![0; length.into()];
    stream.read_exact(&mut reply).await.unwrap();
    read(&reply)
}

fn framed(query: &[u8]) -> Vec<u8> {
    [&u16::try_from(query.len()).unwrap().to_be_bytes(), query].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_over_udp_and_tcp_and_counts_them() {
    let dns = Running::start(Some(node_map(7, 1))).await;
    let german = query("p.cdn.example", Some([192, 0, 2]));
    let other = query("p.cdn.example", None);
    let socket = dns.udp().await;
    assert_eq!(ask_udp(&socket, &german).await, "198.51.100.1");
    assert_eq!(ask_udp(&socket, &other).await, "198.51.100.201");
    assert_eq!(ask_udp(&socket, &query("x.cdn.example", None)).await, "Non-Existent Domain");
    socket.send(b"short").await.unwrap();
    let mut stream = dns.tcp().await;
    stream.write_all(&framed(&german)).await.unwrap();
    assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
    // Sent after the short one, maybe to the other thread: ask until it must have been seen.
    let metrics = loop {
        let metrics = dns.context.metrics.render();
        if metrics.contains(r#"dns_dropped_total{reason="short",transport="udp"} 1"#) {
            break metrics;
        }
        assert_eq!(ask_udp(&socket, &query("elsewhere.example", None)).await, "Query Refused");
    };
    for line in [
        r#"cacheboy_dns_answers_total{answer="steered",transport="udp"} 2"#,
        r#"cacheboy_dns_answers_total{answer="steered",transport="tcp"} 1"#,
        r#"cacheboy_dns_answers_total{answer="nxdomain",transport="udp"} 1"#,
        r#"cacheboy_dns_client_subnets_total{transport="udp"} 1"#,
        r#"cacheboy_dns_project_answers_total{answer="steered",project="p"} 3"#,
        r#"cacheboy_dns_pool_answers_total{pool="europe"} 2"#,
        r#"cacheboy_dns_pool_answers_total{pool="world"} 1"#,
        r#"cacheboy_dns_node_answers_total{node="de"} 2"#,
        r#"cacheboy_dns_node_answers_total{node="us"} 1"#,
        "cacheboy_dns_tcp_connections 1",
        "cacheboy_dns_snapshot_generation 7",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    let status = dns.context.status.show();
    assert_eq!(status["dns"]["generation"], 7);
    assert_eq!(status["dns"]["databases"][0]["networks"], 1);
    dns.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_start_says_so_until_a_map_comes() {
    let dns = Running::start(None).await;
    let socket = dns.udp().await;
    let german = query("p.cdn.example", Some([192, 0, 2]));
    assert_eq!(ask_udp(&socket, &german).await, "Server Failure");
    dns.maps.send_replace(Some(node_map(1, 5)));
    let seen = dns.until("198.51.100.5").await;
    assert!(seen.iter().all(|a| a == "Server Failure" || a == "198.51.100.5"), "{seen:?}");
    dns.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_maps_lose_no_query() {
    let dns = Running::start(Some(node_map(1, 1))).await;
    for generation in 2..60 {
        let (old, new) = (generation - 1, generation);
        dns.maps.send_replace(Some(node_map(new, u8::try_from(new).unwrap())));
        let seen = dns.until(&format!("198.51.100.{new}")).await;
        let known = [format!("198.51.100.{old}"), format!("198.51.100.{new}")];
        assert!(seen.iter().all(|answer| known.contains(answer)), "{seen:?}");
    }
    dns.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_database_is_read_and_a_bad_one_is_not_used() {
    let dns = Running::start(Some(node_map(1, 1))).await;
    let socket = dns.udp().await;
    let german = query("p.cdn.example", Some([192, 0, 2]));
    let error = || dns.context.status.show()["dns"]["errors"]["location"].clone();
    std::fs::write(&dns.database, b"not a database").unwrap();
    while error().is_null() {
        assert_eq!(ask_udp(&socket, &german).await, "198.51.100.1");
    }
    assert!(error().as_str().unwrap().contains("country.mmdb"), "{}", error());
    let errors = r#"cacheboy_host_steering_errors_total{source="location"} "#;
    let metrics = dns.context.metrics.render();
    assert!(metrics.contains(errors) && !metrics.contains(&format!("{errors}0")), "{metrics}");
    // Still the old one; and rules that change are compiled from it.
    assert_eq!(ask_udp(&socket, &german).await, "198.51.100.1");
    write_database(&dns.database, "203.0.113.0/24");
    dns.until("198.51.100.201").await;
    assert!(error().is_null());
    let moved = query("p.cdn.example", Some([203, 0, 113]));
    assert_eq!(ask_udp(&socket, &moved).await, "198.51.100.1");
    dns.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_takes_queries_in_any_pieces_and_answers_in_order() {
    let dns = Running::start(Some(node_map(1, 1))).await;
    let german = framed(&query("p.cdn.example", Some([192, 0, 2])));
    let other = framed(&query("p.cdn.example", None));
    let mut stream = dns.tcp().await;
    // 2,000 at once: more than one write of answers. A message without a header has no answer.
    let pair = [&german[..], &[0, 0], &other].concat();
    stream.write_all(&pair.repeat(1000)).await.unwrap();
    for _ in 0..1000 {
        assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
        assert_eq!(read_tcp(&mut stream).await, "198.51.100.201");
    }
    for byte in &german {
        stream.write_all(&[*byte]).await.unwrap();
    }
    assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
    // Longer than any query: closed, whatever follows.
    stream.write_all(&[0xff, 0xff, 0, 0]).await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0);
    while !dns.context.metrics.render().contains(r#"dns_tcp_closed_total{reason="oversize"} 1"#) {
        tokio::task::yield_now().await;
    }
    dns.stop().await;
}

/// A TCP server alone, with its own limits.
async fn limited(limits: tcp::Limits) -> (SocketAddr, Context, JoinHandle<()>) {
    let context = context(Path::new("."));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxies = Proxies::default();
    let shared = Arc::new(Shared::new(Manners::default(), None, proxies, None, None, &context));
    let server = Arc::new(tcp::Server::new(limits, shared, &context));
    (address, context, tokio::spawn(server.listen(listener)))
}

#[tokio::test]
async fn an_idle_connection_is_closed_also_when_it_drips() {
    let idle = Duration::from_millis(30);
    let limits = tcp::Limits { idle, idle_when_busy: idle, ..Default::default() };
    let (address, context, task) = limited(limits).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A query that never ends: each byte is progress, but no query.
    stream.write_all(&[0x0f, 0xff]).await.unwrap();
    for _ in 0..4000 {
        if stream.write_all(&[0]).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    // The end of the stream, or a reset because of what was dripped behind it.
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0);
    while !context.metrics.render().contains(r#"dns_tcp_closed_total{reason="idle"} 1"#) {
        tokio::task::yield_now().await;
    }
    context.shutdown.end_soon();
    task.await.unwrap();
}

#[tokio::test]
async fn when_no_place_is_free_whoever_is_idle_for_longest_makes_room() {
    let limits = tcp::Limits { connections_max: 2, ..Default::default() };
    let (address, context, task) = limited(limits).await;
    let question = framed(&query("p.cdn.example", None));
    let mut connections = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&question).await.unwrap();
        assert_eq!(read_tcp(&mut stream).await, "Server Failure");
        connections.push(stream);
    }
    // The first one asks again: now the second is idle for longer.
    connections[0].write_all(&question).await.unwrap();
    assert_eq!(read_tcp(&mut connections[0]).await, "Server Failure");
    let mut third = TcpStream::connect(address).await.unwrap();
    third.write_all(&question).await.unwrap();
    assert_eq!(read_tcp(&mut third).await, "Server Failure");
    assert_eq!(connections[1].read(&mut [0; 16]).await.unwrap_or(0), 0);
    connections[0].write_all(&question).await.unwrap();
    assert_eq!(read_tcp(&mut connections[0]).await, "Server Failure");
    let closed = r#"dns_tcp_closed_total{reason="displaced"} 1"#;
    assert!(context.metrics.render().contains(closed), "{}", context.metrics.render());
    context.shutdown.end_soon();
    task.await.unwrap();
}

#[tokio::test]
async fn a_newcomer_is_closed_and_counted_when_nobody_makes_room() {
    let limits = tcp::Limits { connections_max: 0, ..Default::default() };
    let (address, context, task) = limited(limits).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0);
    assert!(context.metrics.render().contains(r#"dns_tcp_closed_total{reason="limit"} 1"#));
    context.shutdown.end_soon();
    task.await.unwrap();
}

#[tokio::test]
async fn one_client_cannot_hold_all_connections() {
    let limits = tcp::Limits { per_client_max: 1, ..Default::default() };
    let (address, context, task) = limited(limits).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(&framed(&query("p.cdn.example", None))).await.unwrap();
    assert_eq!(read_tcp(&mut first).await, "Server Failure");
    let mut second = TcpStream::connect(address).await.unwrap();
    assert_eq!(second.read(&mut [0; 16]).await.unwrap_or(0), 0);
    let closed = r#"dns_tcp_closed_total{reason="client-limit"} 1"#;
    assert!(context.metrics.render().contains(closed));
    // Another address is another client.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(address).await.unwrap();
    other.write_all(&framed(&query("p.cdn.example", None))).await.unwrap();
    assert_eq!(read_tcp(&mut other).await, "Server Failure");
    context.shutdown.end_soon();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_shuts_its_side_gets_all_answers() {
    let dns = Running::start(Some(node_map(1, 1))).await;
    let mut stream = dns.tcp().await;
    let german = framed(&query("p.cdn.example", Some([192, 0, 2])));
    stream.write_all(&german.repeat(3000)).await.unwrap();
    stream.shutdown().await.unwrap();
    for _ in 0..3000 {
        assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
    }
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    dns.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_was_asked_before_the_end_is_answered() {
    let dns = Running::start(Some(node_map(1, 1))).await;
    let german = query("p.cdn.example", Some([192, 0, 2]));
    // From many ports, so that both threads have some.
    let mut sockets = Vec::new();
    for _ in 0..16 {
        sockets.push(dns.udp().await);
    }
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut stream = dns.tcp().await;
        stream.write_all(&framed(&german)).await.unwrap();
        assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
        streams.push(stream);
    }
    for _ in 0..20 {
        for socket in &sockets {
            socket.send(&german).await.unwrap();
        }
    }
    for stream in &mut streams {
        stream.write_all(&framed(&german).repeat(500)).await.unwrap();
    }
    dns.context.shutdown.end_soon();
    for socket in &sockets {
        let mut buffer = [0; 2048];
        for _ in 0..20 {
            let received = tokio::time::timeout(Duration::from_secs(20), socket.recv(&mut buffer));
            let length = received.await.expect("no query is lost").unwrap();
            assert_eq!(read(&buffer[..length]), "198.51.100.1");
        }
    }
    for stream in &mut streams {
        for _ in 0..500 {
            assert_eq!(read_tcp(stream).await, "198.51.100.1");
        }
        assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    }
    dns.task.await.unwrap().unwrap();
}

/// One thread runs client and server: the query is in the server's socket when the end is called for, and
/// nothing has told the runtime so.
#[tokio::test]
async fn a_query_that_no_event_has_announced_is_answered_at_the_end() {
    let dns = Running::start(Some(node_map(1, 1))).await;
    let german = framed(&query("p.cdn.example", Some([192, 0, 2])));
    let mut stream = dns.tcp().await;
    stream.write_all(&german).await.unwrap();
    assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
    assert_eq!(stream.try_write(&german).unwrap(), german.len());
    dns.context.shutdown.end_soon();
    assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    dns.task.await.unwrap().unwrap();
}

/// The header of a proxy that was asked by `source`.
fn proxied(source: [u8; 4], bytes: &[u8]) -> Vec<u8> {
    let head = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c";
    [&head[..], &source, &[127, 0, 0, 1, 0x12, 0x34, 0, 53], bytes].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_says_who_asks_and_must_say_it() {
    let proxy_from = vec!["127.0.0.1/32".parse().unwrap()];
    let with_proxy = |params| Params { proxy_from, ..params };
    let dns = Running::start_with(Some(node_map(1, 1)), with_proxy).await;
    let plain = query("p.cdn.example", None);
    let socket = dns.udp().await;
    // Without a header: dropped. The next one is answered by where its client is.
    socket.send(&plain).await.unwrap();
    socket.send(&proxied([192, 0, 2, 9], &plain)[..20]).await.unwrap();
    assert_eq!(ask_udp(&socket, &proxied([192, 0, 2, 9], &plain)).await, "198.51.100.1");
    assert_eq!(ask_udp(&socket, &proxied([203, 0, 113, 9], &plain)).await, "198.51.100.201");
    let errors = r#"dns_udp_errors_total{operation="proxy"} 2"#;
    while !dns.context.metrics.render().contains(errors) {
        tokio::task::yield_now().await;
    }
    // Over TCP once, in any pieces.
    let mut stream = dns.tcp().await;
    for byte in proxied([192, 0, 2, 9], &framed(&plain)) {
        stream.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
    stream.write_all(&framed(&plain)).await.unwrap();
    assert_eq!(read_tcp(&mut stream).await, "198.51.100.1");
    let mut stream = dns.tcp().await;
    stream.write_all(&framed(&plain)).await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0);
    // Whoever is no proxy is not believed.
    let other = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    other.connect(dns.address).await.unwrap();
    assert_eq!(ask_udp(&other, &plain).await, "198.51.100.201");
    other.send(&proxied([192, 0, 2, 9], &plain)).await.unwrap();
    let mut reply = [0; 512];
    other.recv(&mut reply).await.unwrap();
    assert_eq!(reply[..4], [0x0d, 0x0a, 0x89, 4], "NOTIMP to what is no query");
    dns.stop().await;
}

#[tokio::test]
async fn a_taken_port_says_so() {
    let taken = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (_maps, following) = watch::channel(None);
    let params = Params { udp_threads: Some(1), ..Params::new(vec![address]) };
    let context = context(dir.path());
    let watched = steering::start(LocationParams::default(), following, &context).await.unwrap();
    let bound = Dns::bind(params, watched, context).await;
    let Err(Error::Listen(error)) = bound else { panic!("it started") };
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn zone_files_change_without_a_lost_query_and_bad_ones_change_nothing() {
    let running = Running::start(Some(node_map(1000, 1))).await;
    let file = running.database.with_file_name("zones").join("static.example.zone");
    assert_eq!(running.until_of("www.static.example", "192.0.2.1").await.len(), 1);
    rt::file::write_atomic(&file, &static_zone(22)).unwrap();
    let seen = running.until_of("www.static.example", "192.0.2.22").await;
    assert!(seen.iter().all(|answer| answer == "192.0.2.1" || answer == "192.0.2.22"), "{seen:?}");
    rt::file::write_atomic(&file, b"www 60 A 192.0.2.999\n").unwrap();
    while !running.context.metrics.render().contains("cacheboy_dns_zone_findings 1") {
        assert_eq!(running.until_of("www.static.example", "192.0.2.22").await.len(), 1);
    }
    let status = running.context.status.show().to_string();
    assert!(status.contains("static.example.zone:1: expected IPv4 address"), "{status}");
    assert_eq!(running.until_of("www.static.example", "192.0.2.22").await.len(), 1);
    // A node map that has the zone: what it says wins, and the file's own is told.
    rt::file::write_atomic(&file, &static_zone(3)).unwrap();
    running.until_of("www.static.example", "192.0.2.3").await;
    assert!(running.context.metrics.render().contains("cacheboy_dns_zone_findings 0"));
    running.stop().await;
}

#[tokio::test]
async fn a_bad_zone_file_at_the_start_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("static.example.zone"), "www 60 A 192.0.2.999\n").unwrap();
    let (_maps, following) = watch::channel(None);
    let context = context(dir.path());
    let watched = steering::start(LocationParams::default(), following, &context).await.unwrap();
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let zone_files = Some(dir.path().to_owned());
    let params = Params { udp_threads: Some(1), zone_files, ..Params::new(listen) };
    let Err(error) = Dns::bind(params, watched, context).await else { panic!("it started") };
    assert!(error.to_string().contains("static.example.zone:1: expected IPv4 address"), "{error}");
}
