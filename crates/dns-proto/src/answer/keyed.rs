//! Queries that are signed with a key both ends have (RFC 8945): they get what others get, signed, and
//! besides copies of zones, where the key was listed for it.

use std::sync::Arc;

use super::look_up;
use crate::asker::{Asker, Desk, Transport};
use crate::caller::{Admission, Caller, Made};
use crate::options::ExtendedError;
use crate::outcome::{Answered, Outcome, Sort};
use crate::query::{self, Head, OPCODE_NOTIFY};
use crate::reply::Records;
use crate::snapshot::Snapshot;
use crate::transfer::Transfer;
use crate::tsig::{Chain, Fault, Signature};
use crate::wire::{CLASS_IN, QUESTION_NAME, rtype};
use crate::zonefile::ZoneFile;

/// Answers a message whose signature begins at a place of it.
pub(super) fn answer(
    snapshot: &Snapshot,
    (message, at): (&[u8], usize),
    head: &Head<'_>,
    asker: &Asker,
    desk: &mut Desk,
    out: &mut Vec<u8>,
) -> Outcome {
    let now_s = asker.now.wall_ms / 1000;
    let caller = Caller::new(head, asker, &desk.manners);
    let Some(signature) = Signature::read(message, at) else {
        return caller.without_data(Sort::FormErr, None, out);
    };
    let transfers = desk.manners.transfers.clone().unwrap_or_default();
    let key = transfers.key(&signature.key, &signature.algorithm);
    let judged = key.ok_or(Fault::Key).and_then(|key| {
        signature.judge(key, now_s)?;
        Ok(key)
    });
    let key = match judged {
        Ok(key) => key,
        Err(fault) => {
            let outcome = caller.without_data(Sort::NotAuth, None, out);
            if !out.is_empty() {
                signature.answer_fault(fault, key.map(Arc::as_ref), now_s, out);
            }
            return outcome;
        }
    };
    let unsigned = signature.unsigned();
    let Ok(query) = query::read(&unsigned) else {
        return caller.without_data(Sort::FormErr, None, out);
    };
    let mut chain = Chain::new(Arc::clone(key), &signature);
    let caller = Caller::new(&query.head, asker, &desk.manners).reserving(Chain::record_bytes(key));
    let name = query.name.as_bytes();
    let outcome = match query.qtype {
        _ if query.head.opcode == OPCODE_NOTIFY => {
            // Nobody has to tell us: files are looked at all the time. But it was heard.
            let is_ours = snapshot.table().find(name, rtype::SOA).is_some();
            let sort = if is_ours { Sort::Notify } else { Sort::NotAuth };
            caller.without_data(sort, None, out)
        }
        rtype::AXFR | rtype::IXFR if query.qclass == CLASS_IN => {
            match transfers.file(snapshot, name, key) {
                Some(file) if asker.transport == Transport::Tcp => {
                    let mut transfer = Transfer::new(Arc::clone(file), &query.head, chain);
                    transfer.write(now_s, out);
                    desk.transfer = Some(transfer);
                    return Outcome::Answered(Answered {
                        sort: Sort::Transfer,
                        subnet: false,
                        truncated: false,
                        scope: 0,
                        limited: None,
                        led: None,
                    });
                }
                Some(file) if query.qtype == rtype::IXFR => version(&caller, file, out),
                _ => caller.without_data(Sort::Refused, Some(ExtendedError::PROHIBITED), out),
            }
        }
        _ => look_up(snapshot, &query, &caller, (&mut desk.dice, desk.pen.as_mut()), out),
    };
    if !out.is_empty() {
        chain.sign(now_s, out);
    }
    outcome
}

/// The SOA record alone: the zone is to be had over TCP, if that is another one than the asker has
/// (RFC 1995 section 2).
fn version(caller: &Caller<'_>, file: &ZoneFile, out: &mut Vec<u8>) -> Outcome {
    let soa = file.soa().map(|soa| soa.rendered()).unwrap_or_default();
    let admission = caller.admit(Sort::Fixed, 0);
    let mut reply = caller.reply(out);
    if admission == Admission::Granted {
        reply.answer(QUESTION_NAME, Records { bytes: &soa, count: 1 });
    }
    let made = Made { sort: Sort::Fixed, authoritative: true, scope: 0, led: None };
    caller.finish(reply, admission, made)
}
