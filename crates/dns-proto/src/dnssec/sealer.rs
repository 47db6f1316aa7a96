//! Signs the sections of one reply as they are closed.

use super::signer::{Exhausted, Order, Pen};
use crate::asker::Asker;
use crate::names::Names;
use crate::wire::rtype;

/// The pen at work on one reply.
pub(crate) struct Sealer<'a> {
    pen: &'a mut Pen,
    names: &'a Names,
    order: Order,
    /// NSEC records speak for the side of the parent.
    parental: bool,
}

impl<'a> Sealer<'a> {
    /// A sealer for a reply to a question for `qtype`; see [`Order::name_made_up`].
    pub(crate) fn new(
        pen: &'a mut Pen,
        names: &'a Names,
        asker: &Asker,
        qtype: u16,
        name_made_up: bool,
    ) -> Self {
        let order = Order { now: asker.now, transport: asker.transport, name_made_up };
        Self { pen, names, order, parental: qtype == rtype::DS }
    }

    /// Appends the signatures of the section that begins at `from` of `out` and ends it; returns
    /// their number.
    pub(crate) fn seal(&mut self, out: &mut Vec<u8>, from: usize) -> Result<u16, Exhausted> {
        let Self { pen, names, order, parental } = self;
        pen.sign(out, from, *order, |owner, rtype| {
            // What is not there of a DS set is the parent's to say, as the set itself would be.
            let as_ds = *parental && rtype == rtype::NSEC;
            names.keys_of(owner, if as_ds { rtype::DS } else { rtype })
        })
    }
}
