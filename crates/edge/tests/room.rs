//! A full or failing disk costs hits, never a download.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use model::{ByteCount, Dice};
use serve::disk::FsDisk;
use store::testing::{EIO, FaultDisk, Faults};
use store::{Disk, Entry, Lock};
use support::edge::{Edge, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::{Notify, Semaphore};

/// Ten blocks and a bit.
const LENGTH: usize = 10 * BLOCK + 1234;

fn gate(at: usize) -> (u64, Arc<Semaphore>) {
    (at as u64, Arc::new(Semaphore::new(0)))
}

/// The value of a metric without labels.
fn metric(edge: &Edge, name: &str) -> u64 {
    let page = edge.metrics();
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap().parse().unwrap()
}

/// Disks that fail at a write.
fn failing() -> [Faults; 3] {
    let broken = Faults { writes: Some(EIO), names: Some(EIO), ..Faults::default() };
    [Faults::FULL, Faults::READ_ONLY, broken]
}

async fn on_faulty(dir: &Path, masters: &[&Origin]) -> (Edge, Arc<FaultDisk>) {
    let disk = Arc::new(FaultDisk::new(dir.join("store"), Dice::seeded(1)));
    let masters: Vec<_> = masters.iter().map(|m| m.address).collect();
    let map = Some(node_map(1, &masters));
    let edge = Edge::on_disk(dir, map, ByteCount(1 << 30), disk.clone()).await;
    (edge, disk)
}

/// A disk whose syncs take as long as a test wants.
struct Slow {
    disk: FsDisk,
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: Notify,
}

impl Slow {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Opens at the end of a test, however that comes: nothing ends while a sync waits.
struct OpensAtLast(Arc<Slow>);

impl Drop for OpensAtLast {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Disk for Slow {
    fn sync_all(&self) -> io::Result<()> {
        self.waiting.notify_one();
        drop(self.opened.wait_while(self.is_open.lock().unwrap(), |open| !*open).unwrap());
        self.disk.sync_all()
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn lock(&self) -> io::Result<Option<Lock>> {
        self.disk.lock()
    }
    fn create(&self, path: &Path) -> io::Result<File> {
        self.disk.create(path)
    }
    fn create_new(&self, path: &Path) -> io::Result<File> {
        self.disk.create_new(path)
    }
    fn open_read(&self, path: &Path) -> io::Result<File> {
        self.disk.open_read(path)
    }
    fn open_write(&self, path: &Path) -> io::Result<File> {
        self.disk.open_write(path)
    }
    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_at(file, buffer, offset)
    }
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_all_at(file, bytes, offset)
    }
    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        self.disk.set_len(file, len)
    }
    fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        self.disk.punch(file, offset, len)
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        self.disk.sync(file)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.disk.list(path)
    }
}

/// A flush that has everything in its hands, for as long as the disk takes, is in nobody's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_objects_in_a_row_go_through_a_small_store_while_it_is_flushed() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let slow = Arc::new(Slow {
        disk: FsDisk::new(dir.path().join("store")),
        is_open: Mutex::new(false),
        opened: Condvar::new(),
        waiting: Notify::new(),
    });
    let opens = OpensAtLast(Arc::clone(&slow));
    let bodies: Vec<_> = (0..8).map(|n| content(n, LENGTH)).collect();
    for (n, body) in bodies.iter().enumerate() {
        master.put(&format!("/{n}"), Item::new(body.clone(), "a1"));
    }
    // Room for three of eight.
    let size = ByteCount(3 * (LENGTH + 2 * BLOCK) as u64);
    let map = node_map(1, &[master.address]);
    let edge = Edge::on_disk(dir.path(), Some(map), size, slow.clone()).await;
    for round in 0..3 {
        for (n, body) in bodies.iter().enumerate() {
            let reply = edge.get(&format!("/{n}"), &[]).await;
            assert!(reply.complete, "object {n} in round {round}");
            assert_same(&reply.body, body);
        }
        if round == 0 {
            slow.waiting.notified().await;
        }
    }
    assert_eq!(metric(&edge, "cacheboy_edge_past_store_total"), 0);
    assert_eq!(metric(&edge, "cacheboy_edge_responses_broken_off_total"), 0);
    drop(opens);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_room_in_use_a_client_gets_everything_all_the_same() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (a, b) = (content(1, LENGTH), content(2, LENGTH));
    let (at, opens) = gate(8 * BLOCK);
    master.put("/a", Item { gate: Some((at, Arc::clone(&opens))), ..Item::new(a.clone(), "a1") });
    master.put("/b", Item::new(b.clone(), "b1"));
    let map = node_map(1, &[master.address]);
    let size = ByteCount(16 * BLOCK as u64);
    let edge = Edge::with_map(dir.path(), Some(map), size).await;
    let mut first = edge.send("/a", &[]).await;
    first.read_body(8 * BLOCK).await;

    let second = edge.get("/b", &[]).await;
    assert!(second.complete, "{} of {LENGTH} bytes", second.body.len());
    assert_same(&second.body, &b);
    assert_eq!(metric(&edge, "cacheboy_edge_past_store_total"), 1);
    let last = master.asked().pop().unwrap();
    assert_eq!(last.headers["if-match"], "\"b1\"");
    assert!(last.range().unwrap().ends_with(&format!("-{}", LENGTH - 1)), "only what was missing");

    opens.add_permits(1);
    let first = first.reply().await;
    assert!(first.complete);
    assert_same(&first.body, &a);
    assert_eq!(metric(&edge, "cacheboy_edge_past_store_total"), 1, "what is over makes room");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_in_the_middle_of_a_body_breaks_nobody_off() {
    for faults in failing() {
        let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
        let body = content(3, LENGTH);
        let (at, opens) = gate(3 * BLOCK + 100);
        let item = Item { gate: Some((at, Arc::clone(&opens))), ..Item::new(body.clone(), "a1") };
        master.put("/a", item);
        let (edge, disk) = on_faulty(dir.path(), &[&master]).await;
        let mut whole = edge.send("/a", &[]).await;
        whole.read_body(3 * BLOCK + 50).await;
        // Each has begun before the disk fails: a later one would be passed on.
        let mut joined = edge.send("/a", &[]).await;
        joined.read_body(BLOCK).await;
        let range = format!("Range: bytes={}-{}", 2 * BLOCK + 5, 5 * BLOCK);
        let mut part = edge.send("/a", &[&range]).await;
        part.read_body(BLOCK).await;
        disk.set_faults(faults);
        // The first answer and each client's way past the store meet the gate.
        opens.add_permits(100);
        for (name, pending, want) in [
            ("whole", whole, &body[..]),
            ("joined", joined, &body[..]),
            ("part", part, &body[2 * BLOCK + 5..=5 * BLOCK]),
        ] {
            let reply = pending.reply().await;
            assert!(reply.complete, "{name}: {} bytes, {faults:?}", reply.body.len());
            assert_same(&reply.body, want);
        }
        assert_eq!(metric(&edge, "cacheboy_edge_past_store_total"), 3);

        // What was stored is still served from the store, the rest is passed on.
        let asked = master.asked().len();
        assert_same(&edge.range("/a", 10, BLOCK).await.body, &body[10..=BLOCK]);
        assert_eq!(master.asked().len(), asked);
        let reply = edge.get("/a", &[]).await;
        assert!(reply.header("cache-status").contains("detail=disk"), "{:?}", reply.headers);
        assert_same(&reply.body, &body);
        disk.set_faults(Faults::default());
        edge.stop().await;
    }
}

/// What is brought to be stored is the whole: a client that asked for less is not to get that instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_stored_is_answered_as_it_was_asked_for() {
    for faults in failing() {
        let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
        let body = content(8, LENGTH);
        for path in ["/a", "/b", "/c"] {
            master.put(path, Item::new(body.clone(), "a1"));
        }
        let (edge, disk) = on_faulty(dir.path(), &[&master]).await;
        disk.set_faults(faults);
        let reply = edge.get("/a", &["If-None-Match: \"a1\""]).await;
        assert_eq!((reply.status, reply.body.len()), (304, 0), "{faults:?}");
        let range = format!("Range: bytes=-{}", LENGTH - 1);
        let reply = edge.get("/b", &[&range, "If-Range: \"a1\""]).await;
        assert_eq!(reply.status, 206, "{faults:?}");
        assert_same(&reply.body, &body[1..]);
        let reply = edge.get("/c", &[]).await;
        assert_eq!(reply.status, 200, "{faults:?}");
        assert_same(&reply.body, &body);
        disk.set_faults(Faults::default());
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_no_other_can_continue_goes_on_itself() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(4, LENGTH);
    let (at, opens) = gate(3 * BLOCK + 100);
    let gate = Some((at, Arc::clone(&opens)));
    master.put("/a", Item { etag: None, gate, ..Item::new(body.clone(), "") });
    let (edge, disk) = on_faulty(dir.path(), &[&master]).await;
    let mut pending = edge.send("/a", &[]).await;
    pending.read_body(3 * BLOCK + 50).await;
    disk.set_faults(Faults::FULL);
    opens.add_permits(1);
    let reply = pending.reply().await;
    assert!(reply.complete, "{} bytes", reply.body.len());
    assert_same(&reply.body, &body);
    assert_eq!(master.asked().len(), 1);
    // All memory comes back.
    while edge.status()["edge"]["block_buffers_free"] != edge.buffers() {
        tokio::task::yield_now().await;
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_store_the_next_master_goes_on_at_the_same_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Origin::start().await, Origin::start().await);
    let body = content(5, LENGTH);
    let (at, opens) = gate(3 * BLOCK + 100);
    first.put(
        "/a",
        Item {
            gate: Some((at, Arc::clone(&opens))),
            // The first answer never breaks, the one past the store does.
            breaks: [u64::MAX, 7 * BLOCK as u64 + 9].into(),
            ..Item::new(body.clone(), "a1")
        },
    );
    second.put("/a", Item::new(body.clone(), "a1"));
    let (edge, disk) = on_faulty(dir.path(), &[&first, &second]).await;
    let mut pending = edge.send("/a", &[]).await;
    pending.read_body(3 * BLOCK + 50).await;
    disk.set_faults(Faults::FULL);
    opens.add_permits(2);
    let reply = pending.reply().await;
    assert!(reply.complete, "{} bytes", reply.body.len());
    assert_same(&reply.body, &body);
    assert_eq!((first.asked().len(), second.asked().len()), (2, 1));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_store_no_byte_of_another_version_is_sent() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (old, new) = (content(6, LENGTH), content(7, LENGTH));
    let (at, opens) = gate(3 * BLOCK + 100);
    master.put("/a", Item { gate: Some((at, Arc::clone(&opens))), ..Item::new(old.clone(), "v1") });
    let (edge, disk) = on_faulty(dir.path(), &[&master]).await;
    let mut pending = edge.send("/a", &[]).await;
    pending.read_body(3 * BLOCK + 50).await;
    master.put("/a", Item::new(new.clone(), "v2"));
    disk.set_faults(Faults::FULL);
    opens.add_permits(1);
    let reply = pending.reply().await;
    assert!(!reply.complete);
    assert_same(&reply.body, &old[..reply.body.len()]);
    assert_same(&edge.get("/a", &["Cache-Control: no-cache"]).await.body, &new);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_edge_on_a_store_does_not_start_and_says_why() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(8, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.get("/a", &[]).await;
    let map = node_map(1, &[master.address]);
    let refused = Edge::try_start(dir.path(), map).await.unwrap_err();
    let chain = format!("{refused}: {}", std::error::Error::source(&refused).unwrap());
    let folder = dir.path().join("store");
    assert!(chain.contains(folder.to_str().unwrap()), "{chain}");
    assert!(chain.contains("another process uses this folder: stop it"), "{chain}");
    assert_same(&edge.get("/a", &[]).await.body, &body);
    edge.stop().await;
}
