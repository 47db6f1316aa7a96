//! A host that follows a publisher over HTTP, from the first document to the class table.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bgp_proto::{PeerId, Rib, feed};
use model::Asn;
use model::route::{AsPath, Attributes, Communities, Origin};
use nodemap::{NodeMap, RouteRule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::*;
use crate::steering::{self, LocationParams, Watched};

/// A table with one view, `one`, that answers polls at once.
struct Publisher {
    rib: Arc<Mutex<(Rib, bool)>>,
    peer: PeerId,
    address: SocketAddr,
}

impl Publisher {
    async fn start() -> Self {
        let mut rib = Rib::new([1, 2]);
        let view = rib.add_view("one").unwrap();
        let peer = rib.add_peer(view, false).unwrap();
        let rib = Arc::new(Mutex::new((rib, true)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&rib);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let have = head.split("have=").nth(1).unwrap().split('&').next().unwrap();
                let document = {
                    let state = shared.lock().unwrap();
                    feed::document(&state.0, 7, Some(have), |_| state.1)
                };
                let (code, body) = document.map_or((304, Vec::new()), |body| (200, body));
                let head = format!(
                    "HTTP/1.1 {code} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
            }
        });
        Self { rib, peer, address }
    }

    /// Announces a prefix with this origin, or withdraws it.
    fn say(&self, prefix: &str, origin: Option<u32>) {
        let mut state = self.rib.lock().unwrap();
        let prefix = prefix.parse().unwrap();
        match origin {
            None => state.0.withdraw(self.peer, prefix),
            Some(origin) => {
                let attributes = Attributes {
                    next_hop: "192.0.2.9".parse().unwrap(),
                    origin: Origin::Igp,
                    as_path: AsPath::sequence(&[64500, origin]),
                    med: None,
                    local_pref: None,
                    communities: Communities::default(),
                };
                state.0.announce(self.peer, prefix, attributes);
            }
        }
        state.0.commit();
    }

    fn set_up(&self, up: bool) {
        self.rib.lock().unwrap().1 = up;
    }

    fn location(&self, hold_s: u64, move_percent: u32) -> LocationParams {
        let source = format!("http://{}/routes", self.address).parse().unwrap();
        let source = RouteSource::Http(source);
        let routes = Some(RoutesParams { source, hold_s, move_percent });
        LocationParams { routes, ..LocationParams::default() }
    }
}

/// A map that gives pool `other` to clients of AS 64501.
fn node_map() -> Arc<NodeMap> {
    let mut map = nodemap::testing::node_map(1);
    let rules = map.map.maps.values_mut().next().unwrap();
    let pools = vec!["other".parse().unwrap()];
    rules.rules.push(RouteRule { origin: Asn::new(64501), pools, ..RouteRule::default() });
    Arc::new(map)
}

/// The first pool of a client.
fn pool(watched: &Watched, address: &str) -> String {
    let view = watched.view().unwrap();
    let table = view.steering.table();
    let class = table.lookup(address.parse().unwrap()).class;
    table.pools("default", class).unwrap()[0].to_string()
}

async fn until(watched: &mut Watched, address: &str, expected: &str) {
    while pool(watched, address) != expected {
        watched.changed().await.unwrap();
    }
}

#[tokio::test]
async fn announced_withdrawn_and_held_when_the_session_goes() {
    let dir = tempfile::tempdir().unwrap();
    let publisher = Publisher::start().await;
    let context = Context::new("test".parse().unwrap(), dir.path().to_owned());
    let (_maps, following) = watch::channel(Some(node_map()));
    let location = publisher.location(1, 100);
    let mut watched = steering::start(location, following, &context).await.unwrap();
    let client = "198.51.100.1";
    assert_eq!(pool(&watched, client), "all");

    publisher.say("198.51.100.0/24", Some(64501));
    until(&mut watched, client, "other").await;
    let view = watched.view().unwrap();
    let location = view.locator.locate(client.parse().unwrap());
    assert_eq!(
        (location.asn, location.prefix.to_string()),
        (Asn::new(64501), "198.51.100.0/24".into())
    );
    publisher.say("198.51.100.0/24", None);
    until(&mut watched, client, "all").await;
    publisher.say("198.51.100.0/24", Some(64501));
    until(&mut watched, client, "other").await;

    // The session goes, and its routes with it: they stay for the hold.
    let begun = clock::now().mono_ns;
    publisher.set_up(false);
    publisher.say("198.51.100.0/24", None);
    until(&mut watched, client, "all").await;
    assert!(clock::now().mono_ns - begun >= 1_000_000_000);
    publisher.set_up(true);
    publisher.say("198.51.100.0/24", Some(64501));
    until(&mut watched, client, "other").await;
    let text = context.metrics.render();
    for line in [
        r#"cacheboy_host_routes{family="v4",view="one"} 1"#,
        r#"cacheboy_host_routes_up{view="one"} 1"#,
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(context.status.show()["routes"]["one"]["v4"], 1);

    // The next start has them from disk, while nobody answers.
    while last_good(dir.path()).values().all(|table| table.is_empty()) {
        tokio::task::yield_now().await;
    }
    context.shutdown.end_soon();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let publisher = Publisher { address: gone.local_addr().unwrap(), ..publisher };
    drop(gone);
    let context = Context::new("test".parse().unwrap(), dir.path().to_owned());
    let (_maps, following) = watch::channel(Some(node_map()));
    let location = publisher.location(1, 100);
    let watched = steering::start(location, following, &context).await.unwrap();
    assert_eq!(pool(&watched, client), "other");
    let errors = r#"cacheboy_host_routes_errors_total{reason="fetch"}"#;
    while !context.metrics.render().contains(errors) {
        tokio::task::yield_now().await;
    }
    assert_eq!(pool(&watched, client), "other");
}

#[tokio::test]
async fn a_change_that_moves_many_goes_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let publisher = Publisher::start().await;
    publisher.say("10.0.0.0/8", Some(64502));
    let context = Context::new("test".parse().unwrap(), dir.path().to_owned());
    let (_maps, following) = watch::channel(Some(node_map()));
    let location = publisher.location(60, 10);
    let mut watched = steering::start(location, following, &context).await.unwrap();
    while watched.view().unwrap().locator.locate("10.0.0.1".parse().unwrap()).asn.is_none() {
        watched.changed().await.unwrap();
    }
    publisher.say("10.0.0.0/8", Some(64501));
    let mut steps = vec![0];
    while pool(&watched, "10.255.255.255") != "other" {
        watched.changed().await.unwrap();
        let moved = |tenth: u32| {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + (tenth << 24) / 10 + 1);
            pool(&watched, &address.to_string()) == "other"
        };
        let moved = (0..10).filter(|tenth| moved(*tenth)).count();
        if steps.last() != Some(&moved) {
            steps.push(moved);
        }
    }
    assert_eq!(steps, (0..=10).collect::<Vec<_>>());
    while context.status.show()["steering"]["routes_waiting"]["v4"] != 0.0 {
        tokio::task::yield_now().await;
    }
}
