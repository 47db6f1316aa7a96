//! Entity tags, dates as validators, and preconditions both ways.

use std::time::SystemTime;

use http::{HeaderMap, HeaderValue};

use crate::stored::StoredHead;

/// An entity tag (RFC 9110 section 8.8.3), as it stands in the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityTag {
    /// `W/` in front.
    pub weak: bool,
    /// What stands between the quotes.
    pub opaque: Box<[u8]>,
}

/// The validator of a stored representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validator {
    /// A strong entity tag: byte for byte the same, so that ranges may be joined.
    Strong(HeaderValue),
    /// A weak entity tag: good for revalidation only.
    Weak(HeaderValue),
    /// A date that is strong by RFC 9110 section 8.8.2.2: at least a second before `Date`.
    Date(HeaderValue),
    /// A date that is not: good for revalidation only.
    WeakDate(HeaderValue),
}

impl Validator {
    /// Whether parts that carry it may be joined to one representation.
    pub fn joins(&self) -> bool {
        matches!(self, Self::Strong(_) | Self::Date(_))
    }
}

/// `If-Range` of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfRange {
    /// An entity tag.
    Tag(EntityTag),
    /// A date.
    Date(SystemTime),
    /// Neither: never true, so the whole is sent.
    Broken,
}

/// A list of entity tags or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagList {
    /// `*`.
    Any,
    /// Tags.
    Tags(Vec<EntityTag>),
}

/// The preconditions of a request; `None` where absent or not to be evaluated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// `If-Match`.
    pub if_match: Option<TagList>,
    /// `If-None-Match`.
    pub if_none_match: Option<TagList>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<SystemTime>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<SystemTime>,
}

/// The best validator of a stored representation.
pub fn validator(stored: &StoredHead) -> Option<Validator> {
    let _ = stored;
    todo!()
}

/// Fields that make a request for the whole a revalidation (`If-None-Match`,
/// `If-Modified-Since`); empty without a validator.
pub fn revalidation_headers(stored: &StoredHead) -> HeaderMap {
    let _ = stored;
    todo!()
}

/// Fields that make a request for further ranges fail with 412 when the representation is another
/// (`If-Match` or `If-Unmodified-Since`); `None` when its parts cannot be joined: then only one
/// upstream response can fill it.
pub fn range_headers(stored: &StoredHead) -> Option<HeaderMap> {
    let _ = stored;
    todo!()
}
