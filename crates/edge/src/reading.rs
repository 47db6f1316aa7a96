//! What the head of a representation says, read once and kept beside it while it is asked for often.

use std::sync::Arc;

use bytes::Bytes;
use http_cache::{ReadyHead, StoredHead, Variants};
use store::Representation;

/// A head, understood.
pub(crate) enum Reading {
    /// Of an object.
    Object(Arc<ReadyHead>),
    /// The record of the variants of a target.
    Record(Variants),
    /// Of neither: a miss.
    Broken,
}

impl Reading {
    /// That of a representation, as it stands now.
    pub(crate) fn of(rep: &Representation) -> Arc<Self> {
        rep.read_head(|bytes| Self::read(&bytes, rep.length()))
    }

    fn read(bytes: &Bytes, length: u64) -> Self {
        match (Variants::from_bytes(bytes), StoredHead::from_bytes(bytes)) {
            (Some(record), _) => Self::Record(record),
            (None, Ok(head)) => Self::Object(Arc::new(ReadyHead::new(head, length))),
            (None, Err(_)) => Self::Broken,
        }
    }

    /// The record, if it is one.
    pub(crate) fn record(&self) -> Option<&Variants> {
        match self {
            Self::Record(record) => Some(record),
            Self::Object(_) | Self::Broken => None,
        }
    }

    /// The head of an object, if it is one.
    pub(crate) fn head(&self) -> Option<&Arc<ReadyHead>> {
        match self {
            Self::Object(head) => Some(head),
            Self::Record(_) | Self::Broken => None,
        }
    }
}

impl store::Reading for Reading {
    fn memory_bytes(&self) -> usize {
        let more = match self {
            Self::Object(head) => head.memory_bytes(),
            Self::Record(record) => record.memory_bytes(),
            Self::Broken => 0,
        };
        size_of::<Self>().saturating_add(more)
    }
}
