//! A model of what surrounds a fill: a store, masters that do what they are told, readers at their
//! own pace.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fill::{
    Around, Chosen, ClientId, Failure, Fill, Geometry, Head, Limits, MasterId, Masters, Next,
    Output, Pace, Reason, RunId, Subject,
};
use model::{Completion, Now};

/// Bytes of a block.
pub const BLOCK: u32 = 8;
/// How long a blocked client waits before a second master is asked, milliseconds.
pub const PATIENCE_MS: u64 = 100;

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Op {
    Arrive {
        from: u32,
        blocks: u32,
        slow: bool,
    },
    Abort(usize),
    /// A slow client takes blocks.
    Read(usize, u32),
    Head(usize),
    Bytes(usize, u32),
    Fault(usize, Failure),
    Evict(u32),
    Time(u64),
    Popular,
    /// What was asked for before anything was known.
    Early {
        from: u32,
        blocks: u32,
    },
}

/// A request as its master sees it.
#[derive(Debug)]
pub struct Request {
    pub bytes: Range<u64>,
    /// Next byte of the answer.
    pub at: u64,
    /// Where what was split off it begins.
    mine: u64,
    /// Its head was taken.
    pub taken: bool,
}

/// A client and what is left to it.
#[derive(Debug)]
pub struct Client {
    pub left: Range<u32>,
    pub slow: bool,
}

struct Surroundings<'a> {
    masters: &'a Masters,
    held: &'a BTreeSet<u32>,
    hedges: &'a mut usize,
}

impl Surroundings<'_> {
    fn whom(&self, tried: &[MasterId]) -> Option<MasterId> {
        let order: Vec<_> = (0..self.masters.count()).collect();
        self.masters.choose(Now::default(), &order, tried, |_| false).map(|choice| choice.master)
    }
}

impl Around for Surroundings<'_> {
    fn is_held(&self, block: u32) -> bool {
        self.held.contains(&block)
    }
    fn choose(&mut self, tried: &[MasterId]) -> Option<Chosen> {
        let master = self.whom(tried)?;
        Some(Chosen { master, patience_ns: PATIENCE_MS * 1_000_000 })
    }
    fn rival(&mut self, tried: &[MasterId]) -> Option<MasterId> {
        let rival = self.whom(tried).filter(|master| !tried.contains(master))?;
        *self.hedges += 1;
        Some(rival)
    }
}

pub struct World {
    pub fill: Fill,
    subject: Subject,
    limits: Limits,
    masters: Masters,
    geometry: Geometry,
    /// Whether masters answer ranges.
    ranges: bool,
    pub now: Now,
    pub held: BTreeSet<u32>,
    /// Bytes of blocks in flight, by block: each is the low byte of its offset.
    pub buffers: BTreeMap<u32, Vec<u8>>,
    pub requests: BTreeMap<(RunId, MasterId), Request>,
    pub clients: BTreeMap<ClientId, Client>,
    pub served: usize,
    pub failed: usize,
    arrived: u64,
    /// What was asked for, hedges not among it.
    pub asked: Vec<(u64, u64)>,
    pub hedges: usize,
    /// Masters that were said to be slow.
    pub slow: Vec<MasterId>,
    /// Failures for which no master was to blame.
    pub forgiven: usize,
    /// Bytes taken from answers, and of these the ones that were of no use.
    pub received: u64,
    pub skipped: u64,
    pub reasons: BTreeMap<Reason, u32>,
    /// Whether there is room for completion.
    pub spare: bool,
}

impl World {
    /// Masters that answer ranges, completion when it is popular.
    pub fn new(length: u64, masters: usize, only: Option<MasterId>) -> Self {
        let geometry = Geometry::new(length, BLOCK);
        let completion = Completion::Popular;
        let subject = Subject { geometry, masters, only, ranges: true, completion };
        let limits = Limits {
            runs_max: 3,
            ahead_max: 1,
            gap_blocks_max: 1,
            split_blocks_min: u32::MAX,
            window_blocks: 10,
        };
        Self {
            fill: Fill::new(subject, limits, &|_| false),
            subject,
            limits,
            masters: Masters::new(masters),
            geometry,
            ranges: true,
            now: Now::default(),
            held: BTreeSet::new(),
            buffers: BTreeMap::new(),
            requests: BTreeMap::new(),
            clients: BTreeMap::new(),
            served: 0,
            failed: 0,
            arrived: 0,
            asked: Vec::new(),
            hedges: 0,
            slow: Vec::new(),
            forgiven: 0,
            received: 0,
            skipped: 0,
            reasons: BTreeMap::new(),
            spare: true,
        }
    }

    fn anew(mut self) -> Self {
        self.fill = Fill::new(self.subject, self.limits, &|b| self.held.contains(&b));
        self
    }

    pub fn splitting(mut self, split_blocks_min: u32) -> Self {
        self.limits.split_blocks_min = split_blocks_min;
        self.anew()
    }

    pub fn completing(mut self, completion: Completion) -> Self {
        self.subject.completion = completion;
        self.anew()
    }

    pub fn windowed(mut self, window_blocks: u32) -> Self {
        self.limits.window_blocks = window_blocks;
        self.anew()
    }

    /// What the masters do, which nobody knows beforehand.
    pub fn answering_ranges(mut self, ranges: bool) -> Self {
        self.ranges = ranges;
        self
    }

    pub fn holding(mut self, blocks: impl IntoIterator<Item = u32>) -> Self {
        self.held.extend(blocks);
        self.anew()
    }

    pub fn bytes_of(&self, block: u32) -> u64 {
        let bytes = self.geometry.bytes_of(block..block + 1);
        bytes.end - bytes.start
    }

    pub fn arrive(&mut self, blocks: Range<u32>) -> ClientId {
        self.come(blocks, false)
    }

    /// A client that reads only when it is told to.
    pub fn come(&mut self, blocks: Range<u32>, slow: bool) -> ClientId {
        self.arrived += 1;
        let id = ClientId(self.arrived);
        self.fill.handle_want(id, blocks.clone());
        self.clients.insert(id, Client { left: blocks, slow });
        self.settle();
        id
    }

    /// The first master was asked for missing blocks without the machine.
    pub fn early(&mut self, blocks: Range<u32>) {
        let master: MasterId = 0;
        if blocks.clone().any(|b| self.held.contains(&b)) {
            return;
        }
        let hedge_at_ns = self.now.mono_ns + PATIENCE_MS * 1_000_000;
        if let Some(run) = self.fill.expect(master, blocks.clone(), hedge_at_ns) {
            self.request(run, master, self.geometry.bytes_of(blocks), false);
            self.settle();
        }
    }

    pub fn abort(&mut self, nth: usize) {
        if let Some(id) = nth_key(&self.clients, nth) {
            self.clients.remove(&id);
            self.fill.handle_gone(id);
            self.settle();
        }
    }

    /// A slow client takes at most so many blocks.
    pub fn take(&mut self, id: ClientId, blocks: u32) {
        self.read(id, blocks);
        self.settle();
    }

    pub fn head(&mut self, nth: usize) {
        let Some(key) = nth_key(&self.requests, nth) else { return };
        let (run, master) = key;
        let request = self.requests.get_mut(&key).unwrap();
        if request.taken {
            return;
        }
        assert!(self.fill.takes(run, master), "a late one is dropped when another is taken");
        if !self.ranges {
            request.at = 0;
        }
        request.taken = true;
        let held = &self.held;
        match self.fill.handle_head(run, master, request.at, &|b| held.contains(&b)) {
            Head::Late => panic!("it was not late"),
            Head::Taken { slow, .. } => self.slow.extend(slow),
        }
        self.settle();
    }

    pub fn bytes(&mut self, nth: usize, most: u32) {
        let Some(key) = nth_key(&self.requests, nth) else { return };
        let (run, _) = key;
        if !self.requests[&key].taken {
            return;
        }
        let Some(room) = self.fill.room(run) else { return };
        if room.filled == 0 {
            match self.fill.turn(run) {
                Some(Pace::Wanted) => {}
                Some(Pace::Spare) if self.spare => {}
                Some(Pace::Spare | Pace::Paused) => return,
                None => {
                    self.settle();
                    return;
                }
            }
        }
        let request = self.requests.get_mut(&key).unwrap();
        let place = self.geometry.start_of(room.block) + u64::from(room.filled);
        let skipped = place.checked_sub(request.at).expect("an answer does not go back");
        assert!(skipped == 0 || !self.ranges, "the bytes of the answer belong where it is");
        self.skipped += skipped;
        let n = most.clamp(1, room.missing);
        self.received += skipped + u64::from(n);
        let buffer = self.buffers.entry(room.block).or_default();
        assert_eq!(buffer.len(), room.filled as usize);
        buffer.extend((0..u64::from(n)).map(|i| (place + i) as u8));
        request.at = place + u64::from(n);
        assert!(request.at <= self.geometry.length());
        assert!(self.buffers.len() <= self.limits.runs_max + 1, "memory is bounded");
        let full = self.fill.handle_bytes(run, n);
        assert_eq!(full.is_some(), n == room.missing);
        if let Some(full) = full {
            *self.reasons.entry(full.reason).or_default() += 1;
            self.store(run, full.block);
        }
        self.settle();
    }

    fn store(&mut self, run: RunId, block: u32) {
        let bytes = self.geometry.bytes_of(block..block + 1);
        let expected: Vec<u8> = bytes.map(|i| i as u8).collect();
        assert_eq!(self.buffers.remove(&block), Some(expected), "exact bytes of {block}");
        assert!(self.held.insert(block), "{block} was fetched though held");
        let held = self.held.clone();
        if self.fill.handle_stored(run, &|b| held.contains(&b)) == Next::Read {
            let (_, request) = self.requests.iter().find(|((r, _), _)| *r == run).unwrap();
            assert!(request.at < request.bytes.end || !self.ranges, "more than was asked for");
        }
    }

    pub fn fault(&mut self, nth: usize, why: Failure) {
        let Some(key) = nth_key(&self.requests, nth) else { return };
        let (run, master) = key;
        self.requests.remove(&key);
        if self.fill.handle_failed(run, master, why) {
            self.masters.handle_failed(master, why, self.now);
        } else {
            self.forgiven += 1;
        }
        self.settle();
    }

    pub fn pass_time(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        self.settle();
    }

    /// Lets clients read what is held and carries out what the machine wants.
    pub fn settle(&mut self) {
        let ids: Vec<_> = self.clients.iter().filter(|(_, c)| !c.slow).map(|(i, _)| *i).collect();
        for id in ids {
            self.read(id, u32::MAX);
        }
        loop {
            let Self { masters, held, hedges, .. } = self;
            let mut around = Surroundings { masters, held, hedges };
            let output = self.fill.poll(self.now, &mut around);
            match output {
                None => break,
                Some(Output::Request { run, master, bytes, hedge }) => {
                    self.request(run, master, bytes, hedge);
                }
                Some(Output::Discard { block }) => assert!(self.buffers.remove(&block).is_some()),
                Some(Output::Fail { client, .. }) => {
                    assert!(self.clients.remove(&client).is_some(), "{client:?} failed twice");
                    self.failed += 1;
                }
            }
        }
        let fill = &self.fill;
        self.requests.retain(|(run, master), _| fill.takes(*run, *master));
        assert!(self.fill.runs() <= self.limits.runs_max + 1, "more requests than allowed");
    }

    fn read(&mut self, id: ClientId, most: u32) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let before = client.left.start;
        let left = &mut client.left;
        while left.start < left.end && self.held.contains(&left.start) && left.start - before < most
        {
            left.start += 1;
        }
        let left = left.clone();
        if left.start >= left.end {
            self.fill.handle_gone(id);
            self.clients.remove(&id);
            self.served += 1;
        } else if before != left.start {
            self.fill.handle_want(id, left);
        }
    }

    fn request(&mut self, run: RunId, master: MasterId, bytes: Range<u64>, hedge: bool) {
        let (at, mine) = (bytes.start, bytes.end);
        if !hedge {
            self.asked.push((bytes.start, bytes.end));
        }
        if self.ranges && !hedge {
            self.check(bytes.clone());
        }
        let request = Request { mine, bytes, at, taken: false };
        assert!(self.requests.insert((run, master), request).is_none(), "asked twice at once");
    }

    fn check(&mut self, bytes: Range<u64>) {
        let blocks = self.geometry.touched_by(bytes.clone());
        assert!(blocks.clone().all(|b| !self.held.contains(&b)), "{blocks:?} asked though held");
        let near = self.limits.split_blocks_min;
        let fill = &self.fill;
        let live = self.requests.iter_mut().filter(|((run, m), _)| fill.takes(*run, *m));
        for (_, other) in live {
            let coming = self.geometry.touched_by(other.at..other.mine);
            if coming.start.max(blocks.start) < coming.end.min(blocks.end) {
                let far = blocks.start.saturating_sub(coming.start) >= near;
                assert!(far, "{blocks:?} asked though in flight");
                other.mine = bytes.start;
            }
        }
    }

    pub fn step(&mut self, op: &Op) {
        match *op {
            Op::Arrive { from, blocks, slow } => {
                let all = self.geometry.blocks();
                let from = from % all.max(1);
                let until = from.saturating_add(blocks).min(all);
                if from < until {
                    self.come(from..until, slow);
                }
            }
            Op::Early { from, blocks } => {
                let all = self.geometry.blocks();
                let from = from % all.max(1);
                self.early(from..from.saturating_add(blocks).min(all));
            }
            Op::Abort(nth) => self.abort(nth),
            Op::Read(nth, blocks) => {
                if let Some(id) = nth_key(&self.clients, nth) {
                    self.take(id, blocks);
                }
            }
            Op::Head(nth) => self.head(nth),
            Op::Bytes(nth, most) => self.bytes(nth, most),
            Op::Fault(nth, why) => self.fault(nth, why),
            Op::Evict(block) => {
                self.held.remove(&block);
                // Readers of it find out when they come to it.
                let readers = self.clients.iter().filter(|(_, c)| c.left.start == block);
                let readers: Vec<_> = readers.map(|(i, c)| (*i, c.left.clone())).collect();
                for (id, blocks) in readers {
                    self.fill.handle_want(id, blocks);
                }
                self.settle();
            }
            Op::Time(ms) => self.pass_time(ms),
            Op::Popular => {
                self.fill.handle_popular();
                self.settle();
            }
        }
    }

    /// Upstream answers everything from now on, and everybody reads.
    pub fn finish(&mut self) {
        self.clients.values_mut().for_each(|c| c.slow = false);
        // Whoever is blocked where a block was lost finds out.
        let all: Vec<_> = self.clients.iter().map(|(i, c)| (*i, c.left.clone())).collect();
        for (id, blocks) in all {
            self.fill.handle_want(id, blocks);
        }
        self.settle();
        for nth in 0..20_000 {
            if self.requests.is_empty() {
                break;
            }
            self.head(nth);
            self.bytes(nth, 3);
        }
        assert_eq!(self.clients.len(), 0, "somebody waits for ever: {:?}", self.fill);
        assert!(self.fill.is_idle(), "{:?}", self.fill);
    }
}

fn nth_key<K: Copy + Ord, V>(map: &BTreeMap<K, V>, nth: usize) -> Option<K> {
    (!map.is_empty()).then(|| map.keys().nth(nth % map.len()).copied()).flatten()
}
