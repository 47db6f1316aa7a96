//! A client of a filling: what it wants, and its wait for bytes.
//!
//! A reader waits for a block's [`Slot`]: it reads bytes from there as they arrive, and from the
//! store once the block is written. It says where it reads, so that no more is brought than it will
//! take.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fill::{ClientId, Failure, Reach};

use crate::filling::{Filling, State};
use crate::flight::Told;
use crate::slot::Slot;
use crate::state::Object;

/// A client of a filling; gone when dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    filling: Arc<Filling>,
    id: ClientId,
}

impl Reader {
    pub(crate) fn new(filling: Arc<Filling>, id: ClientId) -> Self {
        Self { filling, id }
    }

    /// Its number.
    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    /// What it reads.
    pub(crate) fn filling(&self) -> &Arc<Filling> {
        &self.filling
    }

    /// The last answer that brought something of it.
    pub(crate) fn told(&self) -> Option<Told> {
        self.filling.told()
    }

    /// Whether the reader is one of this object's representation.
    pub(crate) fn is_of(&self, object: &Object) -> bool {
        Arc::ptr_eq(&self.filling.object.rep, &object.rep)
    }

    /// Waits until the first of `blocks` is held, or comes in with an answer that was found to be
    /// of this representation.
    pub(crate) async fn coming(&self, blocks: Range<u32>) -> Result<(), Failure> {
        let is_near = |state: &State| state.fill.reach(blocks.start) == Reach::Coming;
        self.wait(blocks.clone(), |state, _| is_near(state).then_some(())).await.map(|_| ())
    }

    /// It reads the first of `blocks` from the store and will read on to their end.
    pub(crate) fn note_at(&self, blocks: Range<u32>) {
        let filling = &self.filling;
        let mut state = filling.lock();
        if !state.failed.contains_key(&self.id) {
            state.fill.handle_want(self.id, blocks);
            filling.drive(&mut state);
        }
        drop(state);
        filling.note_moved();
    }

    /// Bytes from `offset` on, at most `max`, as they arrive; `None` when the block is in the store.
    /// `until`: the block before which the reader will stop.
    pub(crate) async fn bytes(
        &self,
        offset: u64,
        until: u32,
        max: usize,
    ) -> Result<Option<Bytes>, Failure> {
        let (block, start) = {
            let geometry = self.filling.lock().fill.geometry();
            let block = geometry.block_of(offset);
            (block, geometry.start_of(block))
        };
        let from = offset.saturating_sub(start);
        self.wait(block..until, |_, slot| slot.copy(from, max)).await
    }

    /// Waits until the first of `blocks` is in the store.
    pub(crate) async fn stored(&self, blocks: Range<u32>) -> Result<(), Failure> {
        self.wait(blocks, |_, _| None::<()>).await.map(|_| ())
    }

    /// Waits until the first of `blocks` is held (`None`) or `ready` gives something.
    async fn wait<T>(
        &self,
        blocks: Range<u32>,
        ready: impl Fn(&State, &Slot) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let filling = &self.filling;
        loop {
            let slot = filling.slot(blocks.start);
            let changed = slot.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if filling.object.rep.has(blocks.start) {
                return Ok(None);
            }
            {
                let mut state = filling.lock();
                if let Some(why) = state.failed.remove(&self.id) {
                    return Err(why);
                }
                if let Some(found) = ready(&state, &slot) {
                    return Ok(Some(found));
                }
                if filling.is_unstorable() {
                    // To fetch it for the store would be for nothing.
                    return Err(Failure::Disk);
                }
                state.fill.handle_want(self.id, blocks.clone());
                filling.drive(&mut state);
                if let Some(why) = state.failed.remove(&self.id) {
                    return Err(why);
                }
            }
            filling.note_moved();
            changed.await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.filling.lock();
        state.fill.handle_gone(self.id);
        state.failed.remove(&self.id);
        drop(state);
        self.filling.note_moved();
    }
}
