//! What others do: whole objects in an order, by bytes.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A cache of whole objects.
pub(crate) trait Policy {
    /// Asks for an object of so many bytes; whether it was held. It is held afterwards.
    fn ask(&mut self, object: u32, bytes: u64) -> bool;
}

/// Least recently used.
pub(crate) struct Lru {
    left: u64,
    clock: u64,
    held: HashMap<u32, (u64, u64)>,
    order: BTreeMap<u64, u32>,
}

impl Lru {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { left: capacity, clock: 0, held: HashMap::new(), order: BTreeMap::new() }
    }
}

impl Policy for Lru {
    fn ask(&mut self, object: u32, bytes: u64) -> bool {
        self.clock += 1;
        if let Some((at, _)) = self.held.get_mut(&object) {
            self.order.remove(at);
            *at = self.clock;
            self.order.insert(self.clock, object);
            return true;
        }
        while self.left < bytes {
            let Some((_, oldest)) = self.order.pop_first() else { return false };
            self.left += self.held.remove(&oldest).map_or(0, |(_, bytes)| bytes);
        }
        self.left -= bytes;
        self.held.insert(object, (self.clock, bytes));
        self.order.insert(self.clock, object);
        false
    }
}

/// SIEVE over whole objects.
pub(crate) struct Sieve {
    left: u64,
    held: HashMap<u32, (bool, u64)>,
    /// Oldest first; what has gone stays until the hand comes by.
    queue: VecDeque<u32>,
    hand: usize,
}

impl Sieve {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { left: capacity, held: HashMap::new(), queue: VecDeque::new(), hand: 0 }
    }
}

impl Policy for Sieve {
    fn ask(&mut self, object: u32, bytes: u64) -> bool {
        if let Some((visited, _)) = self.held.get_mut(&object) {
            *visited = true;
            return true;
        }
        while self.left < bytes {
            if self.hand >= self.queue.len() {
                self.hand = 0;
            }
            let Some(at) = self.queue.get(self.hand).copied() else { return false };
            match self.held.get_mut(&at) {
                Some((visited, _)) if *visited => {
                    *visited = false;
                    self.hand += 1;
                }
                _ => {
                    self.queue.remove(self.hand);
                    self.left += self.held.remove(&at).map_or(0, |(_, bytes)| bytes);
                }
            }
        }
        self.left -= bytes;
        self.held.insert(object, (false, bytes));
        self.queue.push_back(object);
        false
    }
}

/// S3-FIFO over whole objects: a tenth for newcomers, a ghost as long as what is held.
pub(crate) struct S3Fifo {
    small_left: i64,
    main_left: i64,
    held: HashMap<u32, (u8, u64)>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    is_ghost: HashSet<u32>,
}

impl S3Fifo {
    pub(crate) fn new(capacity: u64) -> Self {
        let capacity = i64::try_from(capacity).unwrap_or(i64::MAX);
        Self {
            small_left: capacity / 10,
            main_left: capacity - capacity / 10,
            held: HashMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashSet::new(),
        }
    }

    fn promote(&mut self, object: u32, bytes: i64) {
        while self.main_left < bytes {
            let Some(oldest) = self.main.pop_front() else { break };
            let Some((uses, size)) = self.held.get_mut(&oldest) else { continue };
            if *uses > 0 {
                *uses -= 1;
                self.main.push_back(oldest);
            } else {
                self.main_left += *size as i64;
                self.held.remove(&oldest);
            }
        }
        self.main_left -= bytes;
        self.main.push_back(object);
    }
}

impl Policy for S3Fifo {
    fn ask(&mut self, object: u32, bytes: u64) -> bool {
        if let Some((uses, _)) = self.held.get_mut(&object) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        let size = bytes as i64;
        self.held.insert(object, (0, bytes));
        if self.is_ghost.remove(&object) {
            self.promote(object, size);
            return false;
        }
        while self.small_left < size {
            let Some(oldest) = self.small.pop_front() else { break };
            let Some((uses, old)) = self.held.get(&oldest).copied() else { continue };
            self.small_left += old as i64;
            if uses > 1 {
                self.promote(oldest, old as i64);
            } else {
                self.held.remove(&oldest);
                self.ghosts.push_back(oldest);
                self.is_ghost.insert(oldest);
            }
        }
        while self.ghosts.len() > self.held.len() {
            self.ghosts.pop_front().map(|ghost| self.is_ghost.remove(&ghost));
        }
        self.small_left -= size;
        self.small.push_back(object);
        false
    }
}
