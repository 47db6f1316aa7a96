//! The body of an answer in the hands of one client.
//!
//! It keeps its place at the source for as long as its client reads. A client that takes nothing may
//! stay for ever, and a few of them would have all the places; so while others wait for one, who
//! takes nothing for [`STILL_MAX`] loses it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use fill::Failure;

use super::reading::Reading;
use super::turns::Turns;

/// How long a client may take nothing while others wait for its place. Longer than a slow one takes
/// to empty the buffers of the kernel.
const STILL_MAX: Duration = Duration::from_secs(10);
/// Looks at a client in that time.
const LOOKS: u32 = 8;

/// A body that one client reads.
#[derive(Debug)]
pub(crate) struct Lent {
    shared: Arc<Shared>,
    still_max: Duration,
    is_watched: bool,
}

#[derive(Debug)]
struct Shared {
    turns: Arc<Turns>,
    /// `None`: it is being read, has failed, or was taken away.
    reading: Mutex<Option<Reading>>,
    /// How often something was taken.
    takes: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Reading>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent {
    pub(crate) fn new(reading: Reading) -> Self {
        Self::with_patience(reading, STILL_MAX)
    }

    /// The same with another bound than [`STILL_MAX`].
    pub(super) fn with_patience(reading: Reading, still_max: Duration) -> Self {
        let turns = Arc::clone(reading.turns());
        let reading = Mutex::new(Some(reading));
        let shared = Arc::new(Shared { turns, reading, takes: AtomicU64::new(0) });
        Self { shared, still_max, is_watched: false }
    }

    /// The next bytes; `None` at the end of a whole body. [`Failure::Client`]: the client took
    /// nothing for too long.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let reading = self.shared.lock().take();
        let mut reading = reading.ok_or(Failure::Client)?;
        let data = reading.next().await?;
        *self.shared.lock() = Some(reading);
        self.shared.takes.fetch_add(1, Relaxed);
        if data.is_some() && !self.is_watched {
            self.is_watched = true;
            tokio::spawn(watch(Arc::downgrade(&self.shared), self.still_max));
        }
        Ok(data)
    }
}

/// Takes the body away from a client that stands still, when others want its place.
async fn watch(lent: Weak<Shared>, still_max: Duration) {
    let (mut seen, mut still) = (0, 0u32);
    loop {
        tokio::time::sleep(still_max.checked_div(LOOKS).unwrap_or(still_max)).await;
        let Some(lent) = lent.upgrade() else { return };
        let takes = lent.takes.load(Relaxed);
        still = if takes == seen { still.saturating_add(1) } else { 0 };
        seen = takes;
        if still >= LOOKS && lent.turns.waiting() > 0 && lent.lock().take().is_some() {
            return;
        }
    }
}
