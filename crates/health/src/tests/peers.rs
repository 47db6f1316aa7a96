//! Several checkers.

use std::net::SocketAddr;

use model::State;
use nodemap::signature::SecretKey;
use tokio::task::JoinHandle;

use super::fake::{Mood, Node};
use super::{Home, Running, maps_of};
use crate::{Health, Params, Peer};

fn key(seed: u8) -> SecretKey {
    SecretKey::new([seed; 32], [seed; 8]).unwrap()
}

/// A free port of loopback that is not given out again soon.
fn free(address: &str) -> SocketAddr {
    std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap()
}

/// A checker `name` with its key, beside one other.
fn params(home: &Home, own: (SocketAddr, u8), other: (&str, SocketAddr, u8)) -> Params {
    let path = home.dir.path().join("key");
    std::fs::write(&path, key(own.1).to_file()).unwrap();
    let mut params = home.params();
    params.listen = vec![own.0];
    params.key = Some(path);
    params.setup.council.stale_ms = 1500;
    params.setup.council.takeover_ms = 2000;
    params.peers = vec![Peer {
        name: other.0.parse().unwrap(),
        url: format!("http://{}", other.1).parse().unwrap(),
        key: key(other.2).public_key(),
    }];
    params
}

async fn start(name: &str, home: &Home, params: Params) -> Running {
    let mut context = home.context();
    context.name = name.parse().unwrap();
    let health = Health::bind(params, context.clone()).await.unwrap();
    let address = health.addresses()[0];
    let task: JoinHandle<()> = tokio::spawn(health.serve());
    Running { address, context, task }
}

#[tokio::test]
async fn the_first_by_name_publishes_and_the_next_takes_over() {
    let node = Node::new(Mood::well()).await;
    let maps = maps_of(&[("a", "192.0.2.1")]);
    let home = || Home::new(&maps).with("192.0.2.1", &node);
    let (one, two) = (home(), home());
    let (at_one, at_two) = (free("127.55.1.1"), free("127.55.1.2"));
    let hc1 = start("hc1", &one, params(&one, (at_one, 1), ("hc2", at_two, 2))).await;
    let hc2 = start("hc2", &two, params(&two, (at_two, 2), ("hc1", at_one, 1))).await;
    let published = async |checker: &Running, publisher: &str| loop {
        let reply = checker.get("/node-map", &[]).await;
        let map = nodemap::NodeMap::parse(&reply.body).ok();
        match map.filter(|map| map.publisher == publisher) {
            Some(map) => return map,
            None => tokio::task::yield_now().await,
        }
    };
    let first = published(&hc1, "hc1").await;
    hc1.node_is("a", State::Up).await;
    assert_eq!(hc2.get("/node-map", &[]).await.status, 503);
    hc1.stop().await;
    let next = published(&hc2, "hc2").await;
    assert!(next.generation > first.generation);
    hc2.node_is("a", State::Up).await;
    hc2.stop().await;
}
