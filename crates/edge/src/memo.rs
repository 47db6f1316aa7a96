//! What is remembered of keys apart from their content: errors, removals, what cannot be cached.
//!
//! Bounded: [`SHARDS`] tables of two generations of at most [`GENERATION_MAX`] keys; when the young
//! one is full it becomes the old one. Forgetting costs a question to a master, never a wrong
//! answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fill::MasterId;
use http_cache::NoCache;
use http_cache::errors::{ErrorRun, Removal};
use model::Now;
use store::Key;

/// Keys a generation of one shard holds.
const GENERATION_MAX: usize = 1000;
/// Tables, so that requests for different keys seldom wait for each other.
const SHARDS: usize = 32;
/// Distrusted masters remembered of a key.
const DISTRUSTED_MAX: usize = 8;

/// What is known of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memo {
    /// Errors in a row, and the negative entry they make.
    pub(crate) errors: ErrorRun,
    /// Masters that say the held object is gone.
    pub(crate) removal: Removal,
    /// A master showed another representation than the held one: ask before the next use.
    pub(crate) suspect: bool,
    /// Masters whose content was not what they announced: asked last.
    pub(crate) distrusted: Vec<MasterId>,
    /// Its masters answer no ranges.
    pub(crate) no_ranges: bool,
    /// Until when requests are passed on without trying to keep the answer, and why.
    pass: Option<(u64, NoCache)>,
    /// The last revalidation failed; when the next may be tried.
    retry_at_ns: Option<u64>,
    /// Since when masters have only had other content than what is held.
    another_since_ns: Option<u64>,
    /// The last purge before it was begun.
    born: u64,
}

impl Memo {
    /// Why requests for the key are passed on now.
    pub(crate) fn pass(&self, now: Now) -> Option<NoCache> {
        self.pass.filter(|(until, _)| *until > now.mono_ns).map(|(_, why)| why)
    }

    /// The same while something is held that cannot be confirmed: its master says something else
    /// that may not take its place.
    pub(crate) fn pass_held(&self, now: Now) -> Option<NoCache> {
        self.pass(now).filter(|why| *why == NoCache::Error)
    }

    /// Requests are passed on for `ms`.
    pub(crate) fn set_pass(&mut self, now: Now, ms: u64, why: NoCache) {
        self.pass = Some((now.plus_ms(ms).mono_ns, why));
    }

    /// Until when the disk takes nothing of it; 0: it takes all.
    pub(crate) fn unstorable_until_ns(&self) -> u64 {
        self.pass.filter(|(_, why)| *why == NoCache::Disk).map_or(0, |(until_ns, _)| until_ns)
    }

    /// The number of the last purge before anything was noted.
    pub(crate) fn born(&self) -> u64 {
        self.born
    }

    /// Content of these masters was not what they announced.
    pub(crate) fn distrust(&mut self, masters: &[MasterId]) {
        self.distrusted.extend(masters);
        let more = self.distrusted.len().saturating_sub(DISTRUSTED_MAX);
        self.distrusted.drain(..more);
    }

    /// Whether the last revalidation failed.
    pub(crate) fn troubled(&self) -> bool {
        self.retry_at_ns.is_some()
    }

    /// Whether a revalidation may be tried.
    pub(crate) fn may_ask(&self, now: Now) -> bool {
        self.retry_at_ns.is_none_or(|at| at <= now.mono_ns)
    }

    /// Another master has other content than what is held, and its own cannot be asked. Whether that
    /// has been so for `ms`.
    pub(crate) fn is_another_for(&mut self, now: Now, ms: u64) -> bool {
        let since_ns = *self.another_since_ns.get_or_insert(now.mono_ns);
        now.mono_ns.saturating_sub(since_ns) / 1_000_000 >= ms
    }

    /// A revalidation failed; no other within `ms`.
    pub(crate) fn set_troubled(&mut self, now: Now, ms: u64) {
        self.retry_at_ns = Some(now.plus_ms(ms).mono_ns);
    }
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Key, Memo>,
    old: HashMap<Key, Memo>,
}

/// The memos of all keys.
#[derive(Debug, Default)]
pub(crate) struct Memos {
    shards: [Mutex<Generations>; SHARDS],
    /// Purges so far: what was noted before one may be void.
    purges: AtomicU64,
}

impl Memos {
    fn lock(&self, key: &Key) -> MutexGuard<'_, Generations> {
        let [shard, others @ ..] = &self.shards;
        let Key([first, ..]) = *key;
        // Keys are hashes: their first byte is as good as any.
        let index = usize::from(first).checked_rem(SHARDS).unwrap_or(0);
        let shard = index.checked_sub(1).and_then(|i| others.get(i)).unwrap_or(shard);
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next purge, from 1. What is noted from here on is not before it.
    pub(crate) fn next_purge(&self) -> u64 {
        self.purges.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// The number of the last purge, 0 before the first.
    pub(crate) fn last_purge(&self) -> u64 {
        self.purges.load(Relaxed)
    }

    /// What is known; the default when nothing is.
    pub(crate) fn get(&self, key: &Key) -> Memo {
        let both = self.lock(key);
        both.young.get(key).or_else(|| both.old.get(key)).cloned().unwrap_or_default()
    }

    /// Notes something.
    pub(crate) fn update<T>(&self, key: &Key, note: impl FnOnce(&mut Memo) -> T) -> T {
        let mut both = self.lock(key);
        if both.young.len() >= GENERATION_MAX && !both.young.contains_key(key) {
            both.old = std::mem::take(&mut both.young);
        }
        let known = both.old.remove(key);
        let begun = || Memo { born: self.last_purge(), ..Memo::default() };
        let known = known.unwrap_or_else(begun);
        note(both.young.entry(*key).or_insert(known))
    }

    /// Forgets what was known and notes something.
    pub(crate) fn renew(&self, key: &Key, note: impl FnOnce(&mut Memo)) {
        self.update(key, |memo| {
            *memo = Memo { born: memo.born, ..Memo::default() };
            note(memo);
        });
    }

    /// A good answer came: nothing is held against the key any more. How its masters answer is.
    pub(crate) fn clear(&self, key: &Key) {
        let mut both = self.lock(key);
        let known = [both.young.remove(key), both.old.remove(key)];
        drop(both);
        let known = known.into_iter().flatten().next();
        if let Some(Memo { no_ranges, distrusted, .. }) = known
            && (no_ranges || !distrusted.is_empty())
        {
            self.update(key, |memo| *memo = Memo { no_ranges, distrusted, ..memo.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Different keys of one shard.
    fn key(n: usize) -> Key {
        Key(((n as u128) << 8).to_le_bytes())
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_is_kept() {
        let memos = Memos::default();
        for n in 0..3 * GENERATION_MAX {
            memos.update(&key(n), |m| m.suspect = true);
            memos.update(&key(0), |m| m.suspect = true);
        }
        let both = memos.lock(&key(0));
        assert!(both.young.len() + both.old.len() <= 2 * GENERATION_MAX);
        drop(both);
        assert!(memos.get(&key(0)).suspect);
        assert!(!memos.get(&key(1)).suspect, "the oldest is forgotten");
        memos.clear(&key(0));
        assert!(!memos.get(&key(0)).suspect);
    }

    #[test]
    fn notes_end_with_their_time() {
        let t = Now::default();
        let mut memo = Memo::default();
        assert!(memo.may_ask(t) && !memo.troubled());
        memo.set_troubled(t, 1000);
        assert!(memo.troubled() && !memo.may_ask(t.plus_ms(999)) && memo.may_ask(t.plus_ms(1000)));
        assert!(!memo.is_another_for(t, 1000) && !memo.is_another_for(t.plus_ms(999), 1000));
        assert!(memo.is_another_for(t.plus_ms(1000), 1000));
        memo.set_pass(t, 1000, NoCache::NoStore);
        assert_eq!(memo.pass(t.plus_ms(999)), Some(NoCache::NoStore));
        assert_eq!(memo.pass(t.plus_ms(1000)), None);
    }
}
