//! Plays hits through a whole edge in this process over one loopback connection, and says what each
//! allocates: for profiles of the hit path.
//!
//! `hit BYTES HITS`: an object of so many bytes, so many times. Instructions of a hit are the
//! difference of two runs: `valgrind --tool=callgrind target/release/examples/hit 1024 20000`.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on fails")]

use std::time::Instant;

use support::edge::{Edge, HOST};
use support::hits::Hits;
use support::origin::{Item, Origin};
use sys::counting::{Allocated, Counting};

#[path = "../tests/support/mod.rs"]
mod support;

#[global_allocator]
static ALLOCATOR: Counting<mimalloc::MiMalloc> = Counting(mimalloc::MiMalloc);

/// Hits before it is counted: the object comes into memory, buffers find their size.
const WARM: usize = 200;

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::disallowed_methods, reason = "it measures time and does not decide by it")]
async fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse().unwrap_or(0));
    let (Some(bytes @ 1..), Some(count @ 1..)) = (words.next(), words.next()) else {
        eprintln!("usage: hit BYTES HITS");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let origin = Origin::start().await;
    let edge = Edge::start(dir.path(), &[&origin]).await;
    let path = "/pool/main/v/vlc/vlc_3.0.21-1_amd64.deb";
    let item = Item {
        last_modified: Some("Mon, 02 Nov 2026 12:00:00 GMT"),
        fields: vec![
            "Server: nginx".to_owned(),
            "Content-Type: application/vnd.debian.binary-package".to_owned(),
        ],
        ..Item::new(support::content(1, bytes), "6745c3a0-400")
    };
    origin.put(path, item);
    assert_eq!(edge.get(path, &[]).await.status, 200);
    edge.wait_filled().await;
    let mut hits = Hits::new(edge.address, HOST, path, bytes);
    let played = tokio::task::spawn_blocking(move || {
        hits.play(WARM);
        let (before, begin) = (Allocated::now(), Instant::now());
        hits.play(count);
        (Allocated::now().since(before), begin.elapsed(), hits.head())
    });
    let (allocated, time, head) = played.await.unwrap();
    let each = |sum: u64| sum as f64 / count as f64;
    println!("{head}\n");
    println!(
        "{count} hits of {bytes} bytes: {:.1} allocations, {:.0} bytes, {:.2} us each",
        each(allocated.times),
        each(allocated.bytes),
        time.as_secs_f64() * 1e6 / count as f64,
    );
    edge.stop().await;
}
