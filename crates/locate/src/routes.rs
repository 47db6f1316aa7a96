//! [`Routes`]: the live routing table as evidence, one table a view.
//!
//! Each view's prefixes, which may lie inside each other, are laid flat into [`Runs`]: where each route
//! is the one with the longest prefix. So a look-up is one search, and the range around it is known in
//! which the same route holds.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use model::route::{Attributes, RouteTable};
use model::{Asn, Name};
use serde::Serialize;

use crate::runs::{Bits, Runs, innermost};

/// The routes of all views, in the order of their names. Made whole, then only read.
#[derive(Debug, Default)]
pub struct Routes {
    names: Vec<Name>,
    views: Vec<View>,
}

/// The table of one view, and where each of its rows holds.
#[derive(Debug)]
pub(crate) struct View {
    table: Arc<RouteTable>,
    v4: Runs<u32, u32>,
    v6: Runs<u128, u32>,
    /// By attributes: the AS that such a prefix is of.
    origins: Vec<Option<Asn>>,
    /// By row: index of its attributes.
    attributes_v4: Vec<u32>,
    attributes_v6: Vec<u32>,
}

/// The row of addresses without a route.
const NONE: u32 = u32::MAX;

/// The best route of an address in one view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heard {
    /// The view.
    pub view: Name,
    /// The longest prefix with the address that has a route there.
    pub prefix: IpNet,
    /// What it carries.
    #[serde(flatten)]
    pub attributes: Arc<Attributes>,
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, prefix, attributes } = self;
        write!(f, "{view}: {prefix} by {}, path", attributes.next_hop)?;
        match attributes.as_path.is_empty() {
            true => f.write_str(" empty")?,
            false => write!(f, " {}", attributes.as_path)?,
        }
        if !attributes.communities.is_empty() {
            write!(f, ", communities {}", attributes.communities)?;
        }
        Ok(())
    }
}

impl Routes {
    /// Those of these views.
    pub fn new(tables: BTreeMap<Name, Arc<RouteTable>>) -> Self {
        let (names, tables): (Vec<_>, Vec<_>) = tables.into_iter().unzip();
        Self { names, views: tables.into_iter().map(View::new).collect() }
    }

    /// The names of the views, ascending.
    pub fn views(&self) -> &[Name] {
        &self.names
    }

    /// The table of a view, by its place among the names.
    pub fn table(&self, view: usize) -> Option<&Arc<RouteTable>> {
        self.views.get(view).map(|view| &view.table)
    }

    /// The best route of an address in each view that has one, by the names of the views.
    pub fn find(&self, address: IpAddr) -> Vec<Heard> {
        let heard = |(name, view): (&Name, &View)| {
            let (prefix, attributes) = view.find(address.to_canonical())?;
            let attributes = Arc::clone(attributes);
            Some(Heard { view: name.clone(), prefix, attributes })
        };
        self.names.iter().zip(&self.views).filter_map(heard).collect()
    }

    /// Bytes of memory held, attributes left out: others may hold them too.
    pub fn memory_bytes(&self) -> usize {
        self.views.iter().map(View::memory_bytes).fold(0, usize::saturating_add)
    }

    pub(crate) fn all(&self) -> &[View] {
        &self.views
    }
}

impl View {
    fn new(table: Arc<RouteTable>) -> Self {
        let rows = table.rows_v4().zip(0u32..);
        let v4 = flat(innermost(rows.map(|(row, at)| (row.first, row.last, at))));
        let rows = table.rows_v6().zip(0u32..);
        let v6 = flat(innermost(rows.map(|(row, at)| (row.first, row.last, at))));
        let origins = table.attributes().iter().map(|of| of.as_path.origin()).collect();
        let attributes_v4 = table.rows_v4().map(|row| row.attributes).collect();
        let attributes_v6 = table.rows_v6().map(|row| row.attributes).collect();
        Self { table, v4, v6, origins, attributes_v4, attributes_v6 }
    }

    pub(crate) fn v4(&self) -> (&Runs<u32, u32>, &[u32]) {
        (&self.v4, &self.attributes_v4)
    }

    pub(crate) fn v6(&self) -> (&Runs<u128, u32>, &[u32]) {
        (&self.v6, &self.attributes_v6)
    }

    pub(crate) fn origin(&self, attributes: u32) -> Option<Asn> {
        self.origins.get(attributes as usize).copied().flatten()
    }

    fn find(&self, address: IpAddr) -> Option<(IpNet, &Arc<Attributes>)> {
        match address {
            IpAddr::V4(v4) => self.table.get_v4(self.v4.find(v4.to_bits())?.value as usize),
            IpAddr::V6(v6) => self.table.get_v6(self.v6.find(v6.to_bits())?.value as usize),
        }
    }

    fn memory_bytes(&self) -> usize {
        let words = self.attributes_v4.capacity().saturating_add(self.attributes_v6.capacity());
        let words = words.saturating_add(self.origins.capacity());
        self.table
            .memory_bytes()
            .saturating_add(self.v4.memory_bytes())
            .saturating_add(self.v6.memory_bytes())
            .saturating_add(words.saturating_mul(size_of::<u32>()))
    }
}

fn flat<K: Bits>(pieces: Vec<(K, Option<u32>)>) -> Runs<K, u32> {
    Runs::from_ascending(pieces.into_iter().map(|(first, row)| (first, row.unwrap_or(NONE))))
}
