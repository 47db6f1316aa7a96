//! Random interleavings of clients, aborts, evictions and upstream faults, against a model:
//! no block is asked for while it is held or in flight, every byte lands in its place, and every
//! client ends, served or failed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fill::{ClientId, Failure, Fill, Geometry, Limits, Masters, Next, Output, RunId};
use model::Now;
use proptest::prelude::*;

const BLOCK: u32 = 8;

#[derive(Clone, Debug)]
enum Op {
    Arrive { from: u32, blocks: u32 },
    Abort(usize),
    Head(usize),
    Bytes(usize, u32),
    Fault(usize, Failure),
    Evict(u32),
}

#[derive(Debug)]
struct Request {
    master: usize,
    bytes: Range<u64>,
    /// Next byte of the answer.
    at: u64,
    /// Where what was split off it begins.
    mine: u64,
}

struct World {
    fill: Fill,
    masters: Masters,
    geometry: Geometry,
    held: BTreeSet<u32>,
    /// Bytes of blocks in flight, by block: each is the low byte of its offset.
    buffers: BTreeMap<u32, Vec<u8>>,
    requests: BTreeMap<RunId, Request>,
    clients: BTreeMap<ClientId, Range<u32>>,
    served: usize,
    failed: usize,
    arrived: u64,
    asked: Vec<(u64, u64)>,
    /// How far ahead of a request another may be split off it.
    split: u32,
}

impl World {
    fn new(length: u64, masters: usize, only: Option<usize>) -> Self {
        Self::splitting(length, masters, only, u32::MAX)
    }

    fn splitting(length: u64, masters: usize, only: Option<usize>, split: u32) -> Self {
        let geometry = Geometry::new(length, BLOCK);
        let limits =
            Limits { runs_max: 3, ahead_max: 1, gap_blocks_max: 1, split_blocks_min: split };
        Self {
            fill: Fill::new(geometry, masters, only, limits),
            masters: Masters::new(masters),
            geometry,
            held: BTreeSet::new(),
            buffers: BTreeMap::new(),
            requests: BTreeMap::new(),
            clients: BTreeMap::new(),
            served: 0,
            failed: 0,
            arrived: 0,
            asked: Vec::new(),
            split,
        }
    }

    fn arrive(&mut self, blocks: Range<u32>) -> ClientId {
        self.arrived += 1;
        let id = ClientId(self.arrived);
        self.fill.handle_want(id, blocks.clone());
        self.clients.insert(id, blocks);
        self.settle();
        id
    }

    fn abort(&mut self, nth: usize) {
        if let Some(id) = nth_key(&self.clients, nth) {
            self.clients.remove(&id);
            self.fill.handle_gone(id);
            self.settle();
        }
    }

    fn head(&mut self, nth: usize) {
        if let Some(run) = nth_key(&self.requests, nth) {
            self.fill.handle_head(run);
        }
    }

    fn bytes(&mut self, nth: usize, most: u32) {
        let Some(run) = nth_key(&self.requests, nth) else { return };
        let Some(room) = self.fill.room(run) else { return };
        let request = self.requests.get_mut(&run).unwrap();
        let place = self.geometry.start_of(room.block) + u64::from(room.filled);
        assert_eq!(place, request.at, "the bytes of the answer belong where it is");
        let n = most.clamp(1, room.missing);
        let buffer = self.buffers.entry(room.block).or_default();
        assert_eq!(buffer.len(), room.filled as usize);
        buffer.extend((0..u64::from(n)).map(|i| (place + i) as u8));
        request.at += u64::from(n);
        let full = self.fill.handle_bytes(run, n);
        assert_eq!(full.is_some(), n == room.missing);
        if let Some(block) = full {
            self.store(run, block);
        }
        self.settle();
    }

    fn store(&mut self, run: RunId, block: u32) {
        let bytes = self.geometry.bytes_of(block..block + 1);
        let expected: Vec<u8> = bytes.map(|i| i as u8).collect();
        assert_eq!(self.buffers.remove(&block), Some(expected), "exact bytes of {block}");
        assert!(self.held.insert(block), "{block} was fetched though held");
        let at_end = self.requests[&run].at == self.requests[&run].bytes.end;
        let next = self.fill.handle_stored(run);
        if self.split == u32::MAX {
            assert_eq!(at_end, next == Next::Done);
        }
        if next == Next::Read {
            assert!(!at_end, "more is expected than was asked for");
        } else {
            self.requests.remove(&run);
        }
    }

    fn fault(&mut self, nth: usize, why: Failure, now: Now) {
        let Some(run) = nth_key(&self.requests, nth) else { return };
        let request = self.requests.remove(&run).unwrap();
        self.masters.handle_failed(request.master, why, now);
        self.fill.handle_failed(run, why);
        self.settle();
    }

    /// Lets clients read what is held and carries out what the machine wants.
    fn settle(&mut self) {
        self.read();
        loop {
            let held = self.held.clone();
            let masters = &self.masters;
            let order: Vec<_> = (0..masters.count()).collect();
            let choose = |tried: &[usize]| {
                masters.choose(Now::default(), &order, tried, |_| false).map(|choice| choice.master)
            };
            let output = self.fill.poll(&|b| held.contains(&b), &choose);
            match output {
                None => break,
                Some(Output::Request { run, master, bytes }) => self.request(run, master, bytes),
                Some(Output::Discard { block }) => assert!(self.buffers.remove(&block).is_some()),
                Some(Output::Fail { client, .. }) => {
                    assert!(self.clients.remove(&client).is_some(), "{client:?} failed twice");
                    self.failed += 1;
                }
            }
        }
    }

    fn read(&mut self) {
        let Self { clients, held, fill, served, .. } = self;
        clients.retain(|id, left| {
            let before = left.start;
            while left.start < left.end && held.contains(&left.start) {
                left.start += 1;
            }
            if left.start >= left.end {
                fill.handle_gone(*id);
                *served += 1;
            } else if before != left.start {
                fill.handle_want(*id, left.clone());
            }
            left.start < left.end
        });
    }

    fn request(&mut self, run: RunId, master: usize, bytes: Range<u64>) {
        let blocks = self.geometry.touched_by(bytes.clone());
        assert!(blocks.clone().all(|b| !self.held.contains(&b)), "{blocks:?} asked though held");
        for other in self.requests.values_mut() {
            let coming = self.geometry.touched_by(other.at..other.mine);
            if coming.start.max(blocks.start) < coming.end.min(blocks.end) {
                let far = blocks.start.saturating_sub(coming.start) >= self.split;
                assert!(far, "{blocks:?} asked though in flight");
                other.mine = bytes.start;
            }
        }
        self.asked.push((bytes.start, bytes.end));
        let at = bytes.start;
        assert!(
            self.requests.insert(run, Request { master, mine: bytes.end, bytes, at }).is_none()
        );
        assert!(self.requests.len() <= 3, "more requests than allowed");
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Arrive { from, blocks } => {
                let all = self.geometry.blocks();
                let from = from % all.max(1);
                let until = from.saturating_add(blocks).min(all);
                if from < until {
                    self.arrive(from..until);
                }
            }
            Op::Abort(nth) => self.abort(nth),
            Op::Head(nth) => self.head(nth),
            Op::Bytes(nth, most) => self.bytes(nth, most),
            Op::Fault(nth, why) => self.fault(nth, why, Now::default()),
            Op::Evict(block) => {
                self.held.remove(&block);
                // Readers of it find out when they come to it.
                let readers: Vec<_> = self.clients.iter().map(|(i, r)| (*i, r.clone())).collect();
                for (id, blocks) in readers.into_iter().filter(|(_, r)| r.start == block) {
                    self.fill.handle_want(id, blocks);
                }
                self.settle();
            }
        }
    }

    /// Upstream answers everything from now on.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.requests.is_empty() {
                break;
            }
            self.head(0);
            self.bytes(0, 3);
        }
        assert_eq!(self.clients.len(), 0, "somebody waits for ever: {:?}", self.fill);
        assert_eq!(self.served + self.failed + self.aborted(), self.arrived as usize);
        assert!(self.fill.is_idle(), "{:?}", self.fill);
    }

    fn aborted(&self) -> usize {
        self.arrived as usize - self.served - self.failed
    }
}

fn nth_key<K: Copy + Ord, V>(map: &BTreeMap<K, V>, nth: usize) -> Option<K> {
    (!map.is_empty()).then(|| map.keys().nth(nth % map.len()).copied()).flatten()
}

fn failures() -> impl Strategy<Value = Failure> {
    prop::sample::select(vec![
        Failure::Connect,
        Failure::FirstByteTimeout,
        Failure::Truncated,
        Failure::Status(503),
        Failure::Changed,
        Failure::Disk,
    ])
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..12u32, 1..12u32).prop_map(|(from, blocks)| Op::Arrive { from, blocks }),
        1 => any::<usize>().prop_map(Op::Abort),
        6 => any::<usize>().prop_map(Op::Head),
        12 => (any::<usize>(), 1..20u32).prop_map(|(n, m)| Op::Bytes(n, m)),
        2 => (any::<usize>(), failures()).prop_map(|(n, why)| Op::Fault(n, why)),
        1 => (0..12u32).prop_map(Op::Evict),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn every_client_ends_and_no_block_is_asked_twice(
        length in 1..96u64,
        masters in 1..4usize,
        weak in any::<bool>(),
        split in prop::sample::select(vec![2, 4, u32::MAX]),
        ops in prop::collection::vec(ops(), 0..120),
    ) {
        let mut world = World::splitting(length, masters, weak.then_some(0), split);
        for op in &ops {
            world.step(op);
        }
        world.finish();
    }

    #[test]
    fn without_faults_every_wanted_block_comes_exactly_once(
        length in 1..96u64,
        wants in prop::collection::vec((0..12u32, 1..12u32), 1..12),
    ) {
        let mut world = World::new(length, 2, None);
        for (from, blocks) in wants {
            world.step(&Op::Arrive { from, blocks });
            world.step(&Op::Head(0));
            world.step(&Op::Bytes(0, 5));
        }
        world.finish();
        let bytes: u64 = world.asked.iter().map(|(start, end)| end - start).sum();
        let held: u64 = world
            .held
            .iter()
            .map(|b| { let r = world.geometry.bytes_of(*b..b + 1); r.end - r.start })
            .sum();
        prop_assert_eq!(world.failed, 0);
        prop_assert_eq!(bytes, held);
    }
}

#[test]
fn a_full_download_is_one_request_whoever_joins() {
    let mut world = World::new(80, 2, None);
    world.arrive(0..10);
    world.arrive(3..5);
    world.arrive(0..10);
    world.finish();
    assert_eq!(world.asked, [(0, 80)]);
    assert_eq!(world.served, 3);
}

#[test]
fn blocked_blocks_go_first_and_held_ones_are_left_out() {
    let mut world = World::new(80, 2, None);
    world.held.extend([2, 5, 6]);
    world.arrive(0..10);
    assert_eq!(world.asked, [(0, 16)], "one ahead-run at most, and the client is blocked at 0");
    world.arrive(9..10);
    assert_eq!(world.asked, [(0, 16), (72, 80)]);
    world.finish();
    assert_eq!(world.asked, [(0, 16), (72, 80), (24, 40), (56, 72)]);
}

#[test]
fn a_run_nobody_wants_ends_with_its_block() {
    let mut world = World::new(80, 2, None);
    world.arrive(0..10);
    world.head(0);
    world.bytes(0, 3);
    world.abort(0);
    assert_eq!(world.requests.len(), 1, "the begun block is finished");
    world.bytes(0, 5);
    assert_eq!((world.requests.len(), world.held.len()), (0, 1));
    world.arrive(0..10);
    world.finish();
    assert_eq!(world.asked, [(0, 80), (8, 80)]);
}

#[test]
fn a_broken_body_goes_on_at_the_same_byte_with_the_next_master() {
    let mut world = World::new(80, 2, None);
    world.arrive(0..10);
    world.head(0);
    world.bytes(0, 8);
    world.bytes(0, 3);
    world.fault(0, Failure::Truncated, Now::default());
    assert_eq!(world.asked, [(0, 80), (11, 80)]);
    assert_eq!(world.requests.values().map(|r| r.master).collect::<Vec<_>>(), [1]);
    world.finish();
    assert_eq!((world.served, world.failed), (1, 0));
}

#[test]
fn attempts_end_and_later_readers_are_not_failed_before_their_time() {
    let mut world = World::new(80, 1, None);
    world.held.extend([0, 1]);
    let blocked = world.arrive(2..4);
    world.fault(0, Failure::Connect, Now::default());
    assert_eq!(world.failed, 0);
    world.fault(0, Failure::Connect, Now::default());
    assert_eq!(world.failed, 1, "two attempts");
    assert!(!world.fill.has_client(blocked));
    assert_eq!(world.asked.len(), 2);
    // Reading block 1 still; what comes after is parked, not asked in vain.
    world.fill.handle_want(ClientId(99), 1..4);
    world.settle();
    assert_eq!(world.asked.len(), 2);
    // Blocked there now: asked again, since the master may be back.
    world.fill.handle_want(ClientId(99), 2..4);
    world.settle();
    assert_eq!(world.asked.last(), Some(&(16, 32)));
}

#[test]
fn a_weak_validator_keeps_to_its_master_and_a_changed_one_ends_at_once() {
    let mut world = World::new(80, 3, Some(1));
    world.arrive(0..2);
    world.fault(0, Failure::Truncated, Now::default());
    assert_eq!(world.requests.values().map(|r| r.master).collect::<Vec<_>>(), [1]);
    world.fault(0, Failure::Changed, Now::default());
    assert_eq!((world.failed, world.asked.len()), (1, 2));

    let mut world = World::new(80, 2, None);
    world.arrive(0..2);
    world.fault(0, Failure::Changed, Now::default());
    assert_eq!(world.requests.values().map(|r| r.master).collect::<Vec<_>>(), [1]);
    world.finish();
    assert_eq!(world.served, 1, "the other master still had it");
}

#[test]
fn a_client_far_ahead_gets_its_own_request_and_each_byte_comes_once() {
    let mut world = World::splitting(160, 1, None, 8);
    world.arrive(0..20);
    world.head(0);
    world.bytes(0, 8);
    world.arrive(5..6);
    assert_eq!(world.asked, [(0, 160)], "near enough to wait for");
    world.arrive(17..19);
    assert_eq!(world.asked, [(0, 160), (136, 152)]);
    world.finish();
    assert_eq!(world.asked, [(0, 160), (136, 152), (152, 160)], "the first one was cut at 136");
    assert_eq!((world.served, world.failed), (3, 0));
}

#[test]
fn what_was_split_off_and_cannot_be_had_comes_with_the_first_answer() {
    let mut world = World::splitting(160, 1, None, 8);
    world.arrive(0..20);
    world.head(0);
    world.arrive(17..19);
    // The object has changed: new requests are refused, the running answer is still the old one.
    world.fault(1, Failure::Changed, Now::default());
    world.finish();
    assert_eq!((world.served, world.failed), (2, 0));
    assert_eq!(world.asked.last(), Some(&(152, 160)));
}
