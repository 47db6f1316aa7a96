//! [`Sweep`]: a walk through an address space, from border to border of what is known.

use crate::locator::{Databases, Evidence};
use crate::routes::View;
use crate::runs::{Bits, Runs, Walker};

/// Walks from address zero up; each step goes to the nearest border of databases or routes.
#[derive(Debug)]
pub struct Sweep<'a, K> {
    databases: &'a Databases,
    walker: Walker<'a, K, u32>,
    views: Vec<Heeded<'a, K>>,
    heard: Vec<Option<u32>>,
    next: Option<K>,
}

/// One view, walked through beside the databases.
#[derive(Debug)]
struct Heeded<'a, K> {
    view: &'a View,
    walker: Walker<'a, K, u32>,
    /// By row: its attributes.
    attributes: &'a [u32],
    /// Until where what was heard holds.
    until: Option<K>,
}

impl<'a, K: Bits> Sweep<'a, K> {
    pub(crate) fn new(
        databases: &'a Databases,
        runs: &'a Runs<K, u32>,
        views: impl Iterator<Item = (&'a View, (&'a Runs<K, u32>, &'a [u32]))>,
    ) -> Self {
        let heeded = |(view, (runs, attributes))| {
            let walker = Walker::new(runs);
            Heeded { view, walker, attributes, until: None }
        };
        let views: Vec<_> = views.map(heeded).collect();
        let heard = vec![None; views.len()];
        Self { databases, walker: Walker::new(runs), views, heard, next: Some(K::ZERO) }
    }

    /// How many ranges there are at most.
    pub fn at_most(&self) -> usize {
        let of_views = self.views.iter().map(|view| view.walker.len());
        of_views.fold(self.walker.len(), usize::saturating_add)
    }

    /// The next range: its first and last address and what the databases say of it. `None` at the end.
    pub fn step(&mut self) -> Option<(K, K, Evidence)> {
        let first = self.next?;
        let run = self.walker.at(first)?;
        let mut last = run.last;
        for (view, heard) in self.views.iter_mut().zip(&mut self.heard) {
            if view.until.is_none_or(|until| until < first) {
                let run = view.walker.at(first)?;
                view.until = Some(run.last);
                *heard = view.attributes.get(run.value as usize).copied();
            }
            last = view.until.map_or(last, |until| last.min(until));
        }
        self.next = last.after();
        Some((first, last, self.databases.evidence_of(run.value)))
    }

    /// Of the range of the last step, for each view the index of the attributes of its route in the
    /// view's table, if it has one.
    pub fn heard(&self) -> &[Option<u32>] {
        &self.heard
    }

    /// The ranges with all that is known of each: the AS number is that of the route, if there is one.
    pub(crate) fn ranges(mut self) -> impl Iterator<Item = (K, K, Evidence)> + 'a {
        std::iter::from_fn(move || {
            let (first, last, mut evidence) = self.step()?;
            let mut heard = self.views.iter().zip(&self.heard);
            let route = heard.find_map(|(view, heard)| Some((view.view, (*heard)?)));
            if let Some((view, attributes)) = route {
                evidence.asn = view.origin(attributes).or(evidence.asn);
            }
            Some((first, last, evidence))
        })
    }
}
