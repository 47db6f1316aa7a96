//! The document by which others follow a table of routes: whole at first, then what changed.
//!
//! Order of use: [`document`] on the side of the [`Rib`]; [`Feed::read`] and [`Followed::apply`] on the
//! other, which names what it has in its [`Followed::cursor`]. What a follower keeps on its disk is
//! [`Followed::document`], in the same form.
//!
//! # Form
//! `CBROUTES`, format (1 octet), epoch (8), then views, then a CRC-32C of everything before. Numbers
//! without a size are in groups of seven bits, the lowest first, the highest bit set in all but the last
//! octet. A view is: 1; length and bytes of its name; a flag octet (1: a session is up, 2: whole);
//! version before, 0 where it is whole; version; then IPv4 and IPv6 rows. A row is: length of the prefix
//! plus 1; its first address, less that of the row before, shifted by what its length leaves; and what
//! it carries: 0 and attributes (`feed/attributes.rs`), 1 where the prefix is gone, else how many
//! different attributes of this view ago they stood there, plus 1. A 0 in place of a length ends the
//! rows, a 0 in place of a view the views.
//!
//! # Invariants
//! - A document is read whole or not at all; no bytes make reading panic, or take more memory than a
//!   few times their number.
//! - Versions are of one run of the publisher, which its epoch names: a delta on anything else is
//!   refused ([`Gap`]), and the follower asks for the whole.

mod attributes;
mod bytes;
mod followed;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use model::Name;
use model::route::{Attributes, Change};

use crate::Rib;
use bytes::{Reader, put};
pub use followed::{Followed, FollowedView, Gap};

const MAGIC: &[u8; 8] = b"CBROUTES";
const FORMAT: u8 = 1;
/// Views in one document.
pub const VIEWS_MAX: usize = 64;
/// The largest document: ten full tables.
pub const BYTES_MAX: usize = 512 << 20;

const UP: u8 = 1;
const WHOLE: u8 = 2;

/// Why a document was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// Not such a document, or one that was damaged or cut.
    #[error("not a whole document of routes")]
    Damaged,
    /// Written by a newer Cacheboy.
    #[error(
        "a document of routes in format {0}, newer than this program reads (1): upgrade this host"
    )]
    Newer(u8),
}

/// A document that was read.
#[derive(Debug)]
pub struct Feed {
    /// The run of the publisher that the versions are of.
    pub epoch: u64,
    /// Its views; one that is not there is no more.
    pub views: Vec<Part>,
}

/// What a document says of one view.
#[derive(Debug)]
pub struct Part {
    /// The view.
    pub view: Name,
    /// Whether a session of the view is up. Without one its routes are those of before.
    pub up: bool,
    /// On which version the changes are; `None` where the view is whole.
    pub from: Option<u64>,
    /// The version after them.
    pub version: u64,
    /// In prefix order, IPv4 before IPv6.
    pub changes: Vec<Change>,
}

/// The document for a follower that says it has `cursor` (`have` of its query): the views of `rib` by its
/// last commit, `up` saying which of them have a session that has sent its whole table. `None` when it has
/// all of that already: then it is answered with 304, after a while (`wait` of its query, seconds).
/// `epoch` is of this run of the publisher, and never 0.
pub fn document(
    rib: &Rib,
    epoch: u64,
    cursor: Option<&str>,
    up: impl Fn(&str) -> bool,
) -> Option<Vec<u8>> {
    let cursor = cursor.and_then(Cursor::parse).filter(|cursor| cursor.epoch == epoch);
    let mut writer = Writer::new(epoch);
    let mut news = cursor.as_ref().is_none_or(|cursor| cursor.views.len() != rib.views().count());
    for (view, name) in rib.views().take(VIEWS_MAX) {
        let (version, up) = (rib.version(view), up(name));
        let known = cursor.as_ref().and_then(|cursor| cursor.views.get(name));
        news |= known != Some(&(version, up));
        let changes = known.and_then(|(from, _)| Some((*from, rib.changes_since(view, *from)?)));
        match changes {
            Some((from, changes)) => writer.view(name, up, Some(from), version, &changes),
            None => {
                let routes = rib.export(view).map(|(prefix, of)| (prefix, Some(of)));
                writer.rows(name, up, None, version, routes);
            }
        }
    }
    news.then(|| writer.finish())
}

/// What a follower has that has all of `rib` by its last commit: the same `epoch` and `up` as of a
/// [`document`]. Two whole documents are equal where this is.
pub fn cursor(rib: &Rib, epoch: u64, up: impl Fn(&str) -> bool) -> String {
    let mut text = epoch.to_string();
    for (view, name) in rib.views().take(VIEWS_MAX) {
        push_view(&mut text, name, rib.version(view), up(name));
    }
    text
}

fn push_view(cursor: &mut String, view: &str, version: u64, up: bool) {
    // Writing to a string cannot fail.
    let _ = write!(cursor, ",{view}:{version}:{}", u8::from(up));
}

/// What a follower says that it has.
#[derive(Debug)]
struct Cursor {
    epoch: u64,
    /// By view: version and whether it was up.
    views: HashMap<String, (u64, bool)>,
}

impl Cursor {
    /// Reads `EPOCH,VIEW:VERSION:UP,...`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let epoch = parts.next()?.parse().ok()?;
        let view = |part: &str| {
            let (view, rest) = part.split_once(':')?;
            let (version, up) = rest.split_once(':')?;
            Some((view.to_owned(), (version.parse().ok()?, up == "1")))
        };
        let views = parts.take(VIEWS_MAX).map(view).collect::<Option<_>>()?;
        Some(Self { epoch, views })
    }
}

/// Writes a document.
#[derive(Debug)]
struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn new(epoch: u64) -> Self {
        let mut out = MAGIC.to_vec();
        out.push(FORMAT);
        out.extend(epoch.to_le_bytes());
        Self { out }
    }

    fn view(&mut self, name: &str, up: bool, from: Option<u64>, version: u64, changes: &[Change]) {
        let changes = changes.iter().map(|(prefix, what)| (*prefix, what.as_ref()));
        self.rows(name, up, from, version, changes);
    }

    /// One view, of rows in prefix order, IPv4 before IPv6.
    fn rows<'a>(
        &mut self,
        name: &str,
        up: bool,
        from: Option<u64>,
        version: u64,
        rows: impl Iterator<Item = (IpNet, Option<&'a Arc<Attributes>>)>,
    ) {
        let out = &mut self.out;
        out.push(1);
        put(out, name.len() as u128);
        out.extend(name.as_bytes());
        out.push(if up { UP } else { 0 } | if from.is_none() { WHOLE } else { 0 });
        put(out, from.unwrap_or(0).into());
        put(out, version.into());
        let mut known: HashMap<*const Attributes, u64> = HashMap::new();
        let (mut v6, mut last) = (false, 0u128);
        for (prefix, what) in rows {
            let (bits, address) = match prefix.trunc() {
                IpNet::V4(net) => (32u8, u128::from(net.addr().to_bits())),
                IpNet::V6(net) => (128, net.addr().to_bits()),
            };
            if bits == 128 && !v6 {
                out.push(0);
                (v6, last) = (true, 0);
            }
            out.push(prefix.prefix_len().saturating_add(1));
            let host = u32::from(bits.saturating_sub(prefix.prefix_len()));
            // A first address that is in a block before this one differs in the bits that are kept.
            let step = shifted(address, host).saturating_sub(shifted(last, host));
            put(out, step);
            last = address;
            let Some(what) = what else {
                out.push(1);
                continue;
            };
            let next = known.len() as u64;
            let at = *known.entry(Arc::as_ptr(what)).or_insert(next);
            if at == next {
                out.push(0);
                attributes::write(out, what);
            } else {
                put(out, u128::from(next.saturating_sub(at).saturating_add(1)));
            }
        }
        if !v6 {
            out.push(0);
        }
        out.push(0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.push(0);
        let sum = crc32c::crc32c(&self.out);
        self.out.extend(sum.to_le_bytes());
        self.out
    }
}

/// `address` without its host bits, 128 of them too.
fn shifted(address: u128, host: u32) -> u128 {
    address.checked_shr(host).unwrap_or(0)
}

impl Feed {
    /// Reads a document.
    ///
    /// # Errors
    /// When it is none, is damaged, or is of a newer format.
    pub fn read(document: &[u8]) -> Result<Self, FeedError> {
        let rest = document.strip_prefix(MAGIC).ok_or(FeedError::Damaged)?;
        match rest.first() {
            Some(&FORMAT) => {}
            Some(newer) if *newer > FORMAT => return Err(FeedError::Newer(*newer)),
            _ => return Err(FeedError::Damaged),
        }
        let (body, sum) = document.split_last_chunk::<4>().ok_or(FeedError::Damaged)?;
        if document.len() > BYTES_MAX || crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(FeedError::Damaged);
        }
        Self::read_body(body).ok_or(FeedError::Damaged)
    }

    fn read_body(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body.get(MAGIC.len().saturating_add(1)..)?);
        let epoch = u64::from_le_bytes(*reader.array::<8>()?);
        let mut views = Vec::new();
        while reader.byte()? == 1 {
            if views.len() >= VIEWS_MAX {
                return None;
            }
            views.push(read_part(&mut reader)?);
        }
        reader.is_at_end().then_some(Self { epoch, views })
    }
}

fn read_part(reader: &mut Reader<'_>) -> Option<Part> {
    let length = usize::try_from(reader.number()?).ok()?;
    let view: Name = std::str::from_utf8(reader.take(length)?).ok()?.parse().ok()?;
    let flags = reader.byte()?;
    let from = reader.u64()?;
    let version = reader.u64()?;
    let from = (flags & WHOLE == 0).then_some(from);
    let (mut changes, mut known) = (Vec::new(), Vec::new());
    for bits in [32u8, 128] {
        read_rows(reader, bits, &mut known, &mut changes)?;
    }
    Some(Part { view, up: flags & UP != 0, from, version, changes })
}

/// The rows of one family.
fn read_rows(
    reader: &mut Reader<'_>,
    bits: u8,
    known: &mut Vec<Arc<Attributes>>,
    changes: &mut Vec<Change>,
) -> Option<()> {
    let mut last = 0u128;
    while let Some(length) = reader.byte()?.checked_sub(1) {
        let host = u32::from(bits.checked_sub(length)?);
        let step = shifted(last, host).checked_add(reader.number()?)?;
        // Beyond the family's addresses, or shifted out at the top: no prefix.
        let address = step.checked_shl(host).unwrap_or(0);
        if shifted(address, host) != step {
            return None;
        }
        let prefix = match bits {
            32 => IpNet::V4(Ipv4Net::new(u32::try_from(address).ok()?.into(), length).ok()?),
            _ => IpNet::V6(Ipv6Net::new(address.into(), length).ok()?),
        };
        last = address;
        let what = match reader.number()? {
            0 => {
                let attributes = Arc::new(attributes::read(reader)?);
                known.push(Arc::clone(&attributes));
                Some(attributes)
            }
            1 => None,
            ago => {
                let ago = usize::try_from(ago).ok()?.checked_sub(1)?;
                Some(Arc::clone(known.get(known.len().checked_sub(ago)?)?))
            }
        };
        changes.push((prefix, what));
    }
    Some(())
}
