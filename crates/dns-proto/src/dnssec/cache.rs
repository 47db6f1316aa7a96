//! Signatures by what they sign, read without a lock.
//!
//! A table of fixed size. Its slots stand in rows of four; a signature's tag (a keyed hash of 128
//! bits over key, times and records, which nobody outside can make collide) names its row. Each
//! slot is a sequence lock (H.-J. Boehm, "Can seqlocks get along with programming language memory
//! models?", 2012): its number is odd while somebody writes, and a reader who sees it odd or changed
//! has found nothing. Writers never wait either: a slot that is being written is left alone, and the
//! signature made again another time.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::key::SIGNATURE_BYTES;

/// Slots of a row; two bits of a tag tell them apart.
const WAYS: usize = 4;
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();

const WORDS: usize = SIGNATURE_BYTES / 8;

type Signature = [u8; SIGNATURE_BYTES];

/// What a signature is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) [u64; 2]);

/// Until when, in unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    /// It is given.
    pub(crate) given_s: u32,
    /// It holds.
    pub(crate) holds_s: u32,
}

#[derive(Debug, Default)]
struct Slot {
    /// Odd while the slot is written.
    version: AtomicU64,
    /// [`Until`]: what is given until in the upper half; 0: empty.
    until: AtomicU64,
    tag: [AtomicU64; 2],
    signature: [AtomicU64; WORDS],
}

#[derive(Debug)]
pub(crate) struct Cache {
    rows: Vec<[Slot; WAYS]>,
}

impl Cache {
    /// A cache of `rows` times four signatures.
    pub(crate) fn new(rows: usize) -> Self {
        Self { rows: std::iter::repeat_with(Default::default).take(rows.max(1)).collect() }
    }

    /// The signature of `tag`.
    pub(crate) fn get(&self, tag: Tag) -> Option<Signature> {
        self.row(tag).iter().find_map(|slot| slot.get(tag))
    }

    /// Keeps the signature of `tag`, in place of one that is not given any more if there is one.
    pub(crate) fn put(&self, tag: Tag, signature: &Signature, until: Until, now_s: u32) {
        let row = self.row(tag);
        let free = row.iter().find(|slot| slot.until().is_none_or(|until| until.given_s <= now_s));
        let Tag([_, low]) = tag;
        let any = usize::try_from(low & 3).ok().and_then(|way| row.get(way));
        if let Some(slot) = free.or(any) {
            slot.put(tag, signature, until);
        }
    }

    /// When the first signature among those still given at `now_s` expires.
    pub(crate) fn soonest_s(&self, now_s: u32) -> Option<u32> {
        let slots = self.rows.iter().flatten().filter_map(Slot::until);
        slots.filter(|until| until.given_s > now_s).map(|until| until.holds_s).min()
    }

    fn row(&self, Tag([high, _]): Tag) -> &[Slot] {
        // There is always a row.
        let at = usize::try_from(high).unwrap_or(0).checked_rem(self.rows.len()).unwrap_or(0);
        self.rows.get(at).map_or(&[], |row| row.as_slice())
    }
}

impl Slot {
    fn get(&self, tag: Tag) -> Option<Signature> {
        let version = self.version.load(Ordering::Acquire);
        if self.tag.each_ref().map(|word| word.load(Ordering::Relaxed)) != tag.0 {
            return None;
        }
        let words = self.signature.each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let unchanged = self.version.load(Ordering::Relaxed) == version;
        if !unchanged || version % 2 == 1 || version == 0 {
            return None;
        }
        words.map(u64::to_ne_bytes).as_flattened().try_into().ok()
    }

    fn put(&self, tag: Tag, signature: &Signature, until: Until) {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version.wrapping_add(1);
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if version % 2 == 1
            || self.version.compare_exchange(version, odd, order.0, order.1).is_err()
        {
            return;
        }
        fence(Ordering::Release);
        self.tag.iter().zip(tag.0).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        let (words, _) = signature.as_chunks::<8>();
        for (to, word) in self.signature.iter().zip(words) {
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        let until = u64::from(until.given_s) << 32 | u64::from(until.holds_s);
        self.until.store(until, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// `None`: the slot is empty. May be that of a signature being written.
    fn until(&self) -> Option<Until> {
        let until = self.until.load(Ordering::Relaxed);
        let halves = (u32::try_from(until >> 32), u32::try_from(until & u64::from(u32::MAX)));
        let (Ok(given_s), Ok(holds_s)) = halves else { return None };
        (given_s > 0).then_some(Until { given_s, holds_s })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const UNTIL: Until = Until { given_s: 2000, holds_s: 8000 };

    fn signature(of: Tag) -> Signature {
        let [high, low] = of.0.map(u64::to_le_bytes);
        [high, low, high, low, high, low, high, low].as_flattened().try_into().unwrap()
    }

    #[test]
    fn what_was_put_is_found_until_the_row_is_full() {
        let cache = Cache::new(1);
        let tags: Vec<Tag> = (0..5).map(|i| Tag([i, i])).collect();
        assert_eq!(cache.get(tags[0]), None);
        for tag in &tags[..4] {
            cache.put(*tag, &signature(*tag), UNTIL, 1000);
        }
        for tag in &tags[..4] {
            assert_eq!(cache.get(*tag), Some(signature(*tag)));
        }
        // The row is full: the fifth takes the place that its tag names.
        cache.put(tags[4], &signature(tags[4]), UNTIL, 1000);
        assert_eq!(cache.get(tags[4]), Some(signature(tags[4])));
        assert_eq!(tags.iter().filter(|tag| cache.get(**tag).is_some()).count(), 4);
    }

    #[test]
    fn what_is_not_given_any_more_goes_first() {
        let cache = Cache::new(1);
        for i in 0..4 {
            let until = if i == 2 { Until { given_s: 1500, holds_s: 7500 } } else { UNTIL };
            cache.put(Tag([i, 0]), &signature(Tag([i, 0])), until, 1000);
        }
        assert_eq!(cache.soonest_s(1000), Some(7500));
        assert_eq!(cache.soonest_s(1500), Some(8000));
        assert_eq!(cache.soonest_s(2000), None);
        cache.put(Tag([9, 0]), &signature(Tag([9, 0])), UNTIL, 1600);
        let kept = [0, 1, 3, 9].map(|i| cache.get(Tag([i, 0])).is_some());
        assert_eq!((kept, cache.get(Tag([2, 0]))), ([true; 4], None));
    }

    #[test]
    fn the_empty_tag_is_not_found_in_an_empty_slot() {
        assert_eq!(Cache::new(1).get(Tag([0, 0])), None);
    }

    #[test]
    fn readers_and_writers_at_once_never_see_a_mixture() {
        let cache = Cache::new(2);
        thread::scope(|scope| {
            for seed in 0..4u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for i in 0..50_000u64 {
                        let tag = Tag([i % 16, (i / 7) % 3]);
                        if (i + seed).is_multiple_of(3) {
                            cache.put(tag, &signature(tag), UNTIL, 1000);
                        } else if let Some(found) = cache.get(tag) {
                            assert_eq!(found, signature(tag));
                        }
                    }
                });
            }
        });
    }
}
