//! An edge that is told to leave, or that gives its place to a successor.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use rt::Phase;
use support::edge::Edge;
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::net::TcpStream;

const HEALTH: &str = "/.well-known/cacheboy/health";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_says_it_first_then_what_runs_is_finished_and_nobody_new_is_served() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, 100 * BLOCK);
    master.put("/a", Item::new(body.clone(), "\"a\""));
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut running = edge.send("/a", &[]).await;
    running.read_body(1000).await;

    edge.shutdown().leave();
    let health = edge.get(HEALTH, &[]).await;
    assert_eq!((health.status, &health.body[..]), (503, &b"draining\n"[..]));
    assert_same(&edge.range("/a", 0, 99).await.body, &body[..100]);

    edge.shutdown().drain(Duration::MAX);
    while TcpStream::connect(edge.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_same(&running.reply().await.body, &body);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_successor_coming_health_stays_up() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.shutdown().give_up();
    assert!(edge.shutdown().has_reached(Phase::Leaving));
    assert_eq!(edge.get(HEALTH, &[]).await.status, 200);
    edge.shutdown().leave();
    assert_eq!(edge.get(HEALTH, &[]).await.status, 503, "nobody took over, and it was told to go");
}
