//! Sums of what has ended since they were last taken, by what metrics tell apart.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use model::{Asn, CountryCode};
use usage::{ConnectionRecord, Outcome, Record};

use crate::project::Project;

/// Sums of answers and of connections.
#[derive(Debug, Default)]
pub(super) struct Sums {
    answers: HashMap<Kind, (Option<Arc<Project>>, Sum), BuildHasherDefault<Mix>>,
    connections: HashMap<u32, Ways, BuildHasherDefault<Mix>>,
}

/// What answers of one sum have in common. A project is known by where it is in memory: the sum keeps
/// it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    project: usize,
    country: Option<CountryCode>,
    asn: u32,
    outcome: Outcome,
}

/// So many answers, and bytes of content sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl Sum {
    pub(super) fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What was measured of connections, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ways {
    pub(super) connections: u64,
    pub(super) acked_bytes: u64,
    pub(super) sent_segments: u64,
    pub(super) retransmitted_segments: u64,
    pub(super) min_rtt_us: u64,
    /// Those of which a rate was measured.
    pub(super) rated: u64,
    pub(super) delivery_rate: u64,
}

impl Ways {
    pub(super) fn add(&mut self, other: Self) {
        for (sum, more) in self.fields_mut().into_iter().zip(other.fields()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// In the order of the metrics.
    pub(super) fn fields(mut self) -> [u64; 7] {
        self.fields_mut().map(|field| *field)
    }

    fn fields_mut(&mut self) -> [&mut u64; 7] {
        [
            &mut self.connections,
            &mut self.acked_bytes,
            &mut self.sent_segments,
            &mut self.retransmitted_segments,
            &mut self.min_rtt_us,
            &mut self.rated,
            &mut self.delivery_rate,
        ]
    }
}

/// What answers have in common, for the tables.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) project: Option<Arc<Project>>,
    pub(super) country: Option<CountryCode>,
    pub(super) asn: Option<Asn>,
    pub(super) outcome: Outcome,
    pub(super) sum: Sum,
}

impl Sums {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.answers.len().saturating_add(self.connections.len())
    }

    pub(super) fn note_answer(&mut self, record: &Record<'_>, project: Option<&Arc<Project>>) {
        let kind = Kind {
            project: project.map_or(0, |project| Arc::as_ptr(project).addr()),
            country: record.country,
            asn: number(record.asn),
            outcome: record.outcome,
        };
        let of = || (project.cloned(), Sum::default());
        let (_, sum) = self.answers.entry(kind).or_insert_with(of);
        sum.add(Sum { requests: 1, bytes: record.bytes });
    }

    pub(super) fn note_connection(&mut self, record: &ConnectionRecord<'_>) {
        let way = record.way;
        self.connections.entry(number(record.asn)).or_default().add(Ways {
            connections: 1,
            acked_bytes: way.acked_bytes,
            sent_segments: way.sent_segments,
            retransmitted_segments: way.retransmitted_segments,
            min_rtt_us: way.min_rtt_us,
            rated: u64::from(way.delivery_rate > 0),
            delivery_rate: way.delivery_rate,
        });
    }

    /// Takes those of answers.
    pub(super) fn take_answers(&mut self) -> impl Iterator<Item = Answers> + '_ {
        self.answers.drain().map(|(Kind { country, asn, outcome, .. }, (project, sum))| {
            let asn = Asn::new(asn);
            Answers { project, country, asn, outcome, sum }
        })
    }

    /// Takes those of connections.
    pub(super) fn take_connections(&mut self) -> impl Iterator<Item = (Option<Asn>, Ways)> + '_ {
        self.connections.drain().map(|(asn, ways)| (Asn::new(asn), ways))
    }
}

/// 0 for none.
fn number(asn: Option<Asn>) -> u32 {
    asn.map_or(0, Asn::get)
}

/// Hashes a few small numbers that no client chooses freely: multiply and turn, as rustc does it.
#[derive(Default)]
struct Mix(u64);

const SEED: u64 = 0x51_7c_c1_b7_27_22_0a_95;

impl Mix {
    fn mix(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(SEED);
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix((*byte).into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
