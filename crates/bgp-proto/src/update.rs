//! UPDATE: routes that come and go (RFC 4271 section 4.3, 4760, 8950), with the error handling of RFC
//! 7606 and 9774.
//!
//! The order: the three parts of the message; each attribute once (`update/attributes.rs`), of which
//! the two that hold prefixes are in `update/reach.rs` and the path in `update/as_path.rs`; what is
//! wrong with them (`update/fault.rs`); then what all that means for each prefix.
//!
//! Invariant: of a message that is not refused, every prefix that it names is either announced with
//! well-formed attributes or withdrawn. Never is one left as it was before.

mod as_path;
mod attributes;
mod fault;
mod reach;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use model::Family;
use model::route::Attributes;

use crate::nlri::Nlri;
use crate::notification::{Code, Notification};
use crate::open::Families;
use crate::wire::Reader;

use attributes::Path;
pub use fault::{Fault, Remedy, What};

/// What was agreed on, as far as it decides how an UPDATE is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// AS numbers have four octets (RFC 6793).
    pub four_octet_as: bool,
    /// The other side is of our own AS.
    pub internal: bool,
    /// Families that were agreed on; prefixes of others are ignored.
    pub families: Families,
    /// IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
}

/// Prefixes that are announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced<'a> {
    /// Which.
    pub nlri: Nlri<'a>,
    /// What they carry; `None` where that is malformed, so that they are to be withdrawn (RFC 7606).
    pub attributes: Option<Attributes>,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<'a> {
    /// Prefixes that are gone: of IPv4 as the first RFC has them, and of either family as MP-BGP has
    /// them.
    pub withdrawn: [Nlri<'a>; 2],
    /// Prefixes that are there: likewise.
    pub announced: [Option<Announced<'a>>; 2],
    /// All routes of this family have been sent once (RFC 4724 section 2).
    pub end_of_rib: Option<Family>,
    /// What is wrong with it and was borne.
    pub faults: Vec<Fault>,
}

impl<'a> Update<'a> {
    /// From the body of a message.
    ///
    /// # Errors
    /// What to tell the other side before the session is reset: only where nobody can tell which
    /// prefixes are meant (RFC 7606), or a well-known attribute is not known (RFC 4271 section 6.3).
    pub fn parse(body: &'a [u8], rules: &Rules) -> Result<Self, Notification> {
        let mut reader = Reader(body);
        let parts = reader.part_u16().zip(reader.part_u16());
        let Some((withdrawn, attributes)) = parts else {
            return Err(Notification::new(Code::MalformedAttributeList));
        };
        let nlri = reader.0;
        let prefixes = |bytes| {
            Nlri::parse(Family::V4, bytes).ok_or_else(|| Notification::new(Code::InvalidNetwork))
        };
        let (withdrawn, announced) = (prefixes(withdrawn)?, prefixes(nlri)?);
        let mut path = Path::read(attributes, rules)?;
        let only_unreach = path.only_unreach;
        let end_of_rib = if body.len() == 4 {
            Some(Family::V4)
        } else {
            let none_gone = withdrawn.is_empty() && announced.is_empty() && only_unreach;
            path.unreach.filter(|gone| gone.is_empty() && none_gone).map(Nlri::family)
        };
        path.require(!announced.is_empty());
        let names_some = !announced.is_empty() || path.reach.is_some() || path.reach_of_others;
        if path.is_withdrawn() && !names_some && !only_unreach {
            // Its prefixes may be in what cannot be read (RFC 7606 section 5.2).
            return Err(Notification::new(Code::MalformedAttributeList));
        }
        Ok(path.into_update(withdrawn, announced, end_of_rib, rules))
    }
}

impl<'a> Path<'a> {
    /// What is said of the prefixes.
    fn into_update(
        mut self,
        withdrawn: Nlri<'a>,
        announced: Nlri<'a>,
        end_of_rib: Option<Family>,
        rules: &Rules,
    ) -> Update<'a> {
        let withdraw = self.is_withdrawn();
        let shared = if withdraw { None } else { self.shared() };
        let of = |next_hop: Option<IpAddr>| {
            let (mut attributes, next_hop) = (shared.clone()?, next_hop?);
            attributes.next_hop = next_hop;
            Some(attributes)
        };
        let wanted = |nlri: &Nlri<'_>| rules.families.has(nlri.family()) && !nlri.is_empty();
        let first = Some(announced).filter(wanted);
        let first = first.map(|nlri| Announced { nlri, attributes: of(self.next_hop) });
        let reach = self.reach.filter(|(nlri, _)| wanted(nlri));
        let second = reach.map(|(nlri, next_hop)| Announced { nlri, attributes: of(next_hop) });
        let gone = self.unreach.unwrap_or(Nlri::none(Family::V4));
        Update {
            withdrawn: [withdrawn, gone],
            announced: [first, second],
            end_of_rib,
            faults: std::mem::take(&mut self.faults),
        }
    }
}
