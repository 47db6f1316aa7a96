//! [`RouteTable`]: the best routes of one view, as one value that is only read.
//!
//! Invariants: rows are in the order of their prefixes (address, then length), IPv4 before IPv6; each
//! prefix is there once; each of the attributes is used, and there once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Attributes;

/// What became of one prefix: what it carries now, or nothing.
pub type Change = (IpNet, Option<Arc<Attributes>>);

/// Routes by prefix: 9 octets for one of IPv4 and 21 for one of IPv6, beside attributes, which are
/// shared.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    attributes: Vec<Arc<Attributes>>,
    v4: Rows<u32>,
    v6: Rows<u128>,
}

/// The rows of one family: address, length, and index of the attributes.
#[derive(Clone, Debug, Default)]
struct Rows<K> {
    firsts: Vec<K>,
    lengths: Vec<u8>,
    attributes: Vec<u32>,
}

/// One row: the first and the last address of its prefix, and the index of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<K> {
    /// The lowest address.
    pub first: K,
    /// The highest address.
    pub last: K,
    /// Length of the prefix.
    pub length: u8,
    /// Index into [`RouteTable::attributes`].
    pub attributes: u32,
}

impl RouteTable {
    /// Of routes in the order of their prefixes; of a prefix that comes out of order, or again, nothing
    /// is kept. Host bits are cut off.
    pub fn from_ascending<'a>(routes: impl Iterator<Item = (IpNet, &'a Arc<Attributes>)>) -> Self {
        let mut builder = Builder::default();
        routes.for_each(|(prefix, attributes)| builder.push(prefix, attributes));
        builder.finish()
    }

    /// This table with changes, which may come in any order; of several of one prefix the last holds.
    /// Takes time for each change and, less, for each of the attributes and rows that stay.
    pub fn with_changes(&self, changes: impl IntoIterator<Item = Change>) -> Self {
        let mut changes: Vec<Change> =
            changes.into_iter().map(|(prefix, what)| (prefix.trunc(), what)).collect();
        // Stable: the last of equal ones stays last, and is kept.
        changes.sort_by_key(|(prefix, _)| *prefix);
        changes.reverse();
        changes.dedup_by_key(|(prefix, _)| *prefix);
        changes.reverse();
        let (attributes, numbers) = self.numbered(&changes);
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for ((prefix, what), number) in changes.iter().zip(numbers) {
            let number = what.as_ref().and(number);
            match prefix.addr() {
                IpAddr::V4(first) => v4.push((first.to_bits(), prefix.prefix_len(), number)),
                IpAddr::V6(first) => v6.push((first.to_bits(), prefix.prefix_len(), number)),
            }
        }
        let (v4, v6) = (self.v4.with_changes(&v4), self.v6.with_changes(&v6));
        let mut table = Self { attributes, v4, v6 };
        table.forget_unused();
        table
    }

    /// The attributes that there are, with those of `changes` behind them, and of each change the index of
    /// what it carries.
    fn numbered(&self, changes: &[Change]) -> (Vec<Arc<Attributes>>, Vec<Option<u32>>) {
        let carried = changes.iter().filter_map(|(_, what)| what.as_ref());
        let mut numbers: HashMap<&Attributes, Option<u32>> =
            carried.map(|what| (&**what, None)).collect();
        if !numbers.is_empty() {
            for (known, at) in self.attributes.iter().zip(0u32..) {
                if let Some(number) = numbers.get_mut(&**known) {
                    *number = Some(at);
                }
            }
        }
        let mut attributes = self.attributes.clone();
        let mut number = |what: &Arc<Attributes>| {
            let number = numbers.get_mut(&**what)?;
            if number.is_none() {
                *number = u32::try_from(attributes.len()).ok();
                attributes.push(Arc::clone(what));
            }
            *number
        };
        let of_changes = changes.iter().map(|(_, what)| number(what.as_ref()?)).collect();
        (attributes, of_changes)
    }

    /// Lets go of attributes that no row has any more.
    fn forget_unused(&mut self) {
        let mut numbers = vec![None; self.attributes.len()];
        let rows = self.v4.attributes.iter().chain(&self.v6.attributes);
        for at in rows {
            if let Some(number) = numbers.get_mut(*at as usize) {
                *number = Some(0);
            }
        }
        let mut next = 0u32;
        for number in numbers.iter_mut().flatten() {
            *number = next;
            next = next.saturating_add(1);
        }
        if next as usize == self.attributes.len() {
            return;
        }
        let mut used = numbers.iter();
        self.attributes.retain(|_| used.next().is_some_and(Option::is_some));
        self.attributes.shrink_to_fit();
        for at in self.v4.attributes.iter_mut().chain(&mut self.v6.attributes) {
            *at = numbers.get(*at as usize).copied().flatten().unwrap_or(*at);
        }
    }

    /// All routes, in the order of their prefixes.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, &Arc<Attributes>)> + '_ {
        let v4 = self.v4.iter().map(|row| (net_v4(row.first, row.length), row.attributes));
        let v6 = self.v6.iter().map(|row| (net_v6(row.first, row.length), row.attributes));
        v4.chain(v6).filter_map(|(prefix, at)| Some((prefix, self.attributes.get(at as usize)?)))
    }

    /// The rows of IPv4.
    pub fn rows_v4(&self) -> impl Iterator<Item = Row<u32>> + '_ {
        self.v4.iter()
    }

    /// The rows of IPv6.
    pub fn rows_v6(&self) -> impl Iterator<Item = Row<u128>> + '_ {
        self.v6.iter()
    }

    /// The route in a row of IPv4.
    pub fn get_v4(&self, row: usize) -> Option<(IpNet, &Arc<Attributes>)> {
        let row = self.v4.get(row)?;
        Some((net_v4(row.first, row.length), self.attributes.get(row.attributes as usize)?))
    }

    /// The route in a row of IPv6.
    pub fn get_v6(&self, row: usize) -> Option<(IpNet, &Arc<Attributes>)> {
        let row = self.v6.get(row)?;
        Some((net_v6(row.first, row.length), self.attributes.get(row.attributes as usize)?))
    }

    /// The different attributes.
    pub fn attributes(&self) -> &[Arc<Attributes>] {
        &self.attributes
    }

    /// Number of routes, IPv4 and IPv6.
    pub fn len(&self) -> (usize, usize) {
        (self.v4.firsts.len(), self.v6.firsts.len())
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Bytes of memory held, but for attributes, which others may hold too.
    pub fn memory_bytes(&self) -> usize {
        let shared = self.attributes.capacity().saturating_mul(size_of::<Arc<Attributes>>());
        shared.saturating_add(self.v4.memory_bytes()).saturating_add(self.v6.memory_bytes())
    }

    /// What `self` says below the frontiers, and `old` says from there on: `None` for all of a family.
    /// A prefix across a frontier is cut into prefixes.
    pub fn blend(&self, old: &Self, v4: Option<u32>, v6: Option<u128>) -> Self {
        let mut builder = Builder::default();
        let mut take = |mut rows: Vec<(IpNet, u8, &Arc<Attributes>)>| {
            // Of two that a cut made equal the longer one was the one that held.
            rows.sort_by_key(|(prefix, length, _)| (*prefix, std::cmp::Reverse(*length)));
            rows.into_iter().for_each(|(prefix, _, attributes)| builder.push(prefix, attributes));
        };
        let net = |first: u32, length| net_v4(first, length);
        take(blended((&self.v4, &self.attributes), (&old.v4, &old.attributes), v4, net));
        let net = |first: u128, length| net_v6(first, length);
        take(blended((&self.v6, &self.attributes), (&old.v6, &old.attributes), v6, net));
        builder.finish()
    }
}

/// The rows of `new` below `frontier` and those of `old` from there on, in no order, with the length
/// that each had.
fn blended<'a, K: Address>(
    new: (&Rows<K>, &'a [Arc<Attributes>]),
    old: (&Rows<K>, &'a [Arc<Attributes>]),
    frontier: Option<K>,
    net: impl Fn(K, u8) -> IpNet,
) -> Vec<(IpNet, u8, &'a Arc<Attributes>)> {
    let mut out = Vec::new();
    let mut take = |row: Row<K>, attributes: &'a [Arc<Attributes>], first: K, last: K| {
        let Some(attributes) = attributes.get(row.attributes as usize) else { return };
        if first == row.first && last == row.last {
            out.push((net(row.first, row.length), row.length, attributes));
            return;
        }
        K::prefixes(first, last, &mut |first, length| {
            out.push((net(first, length), row.length, attributes));
        });
    };
    let below = frontier.map(Address::before);
    for row in new.0.iter() {
        match below {
            None => take(row, new.1, row.first, row.last),
            Some(Some(last)) if row.first <= last => {
                take(row, new.1, row.first, row.last.min(last));
            }
            Some(_) => {}
        }
    }
    for row in frontier.into_iter().flat_map(|_| old.0.iter()) {
        if let Some(from) = frontier
            && row.last >= from
        {
            take(row, old.1, row.first.max(from), row.last);
        }
    }
    out
}

/// An address as a number.
trait Address: Copy + Ord {
    /// The last address of the prefix of this length that begins here.
    fn last(self, length: u8) -> Self;
    /// The address before, if any.
    fn before(self) -> Option<Self>;
    /// Gives the prefixes, as wide as can be, that `first..=last` is made of.
    fn prefixes(first: Self, last: Self, give: &mut dyn FnMut(Self, u8));
}

macro_rules! address {
    ($t:ty) => {
        impl Address for $t {
            fn last(self, length: u8) -> Self {
                self | <$t>::MAX.checked_shr(length.into()).unwrap_or(0)
            }
            fn before(self) -> Option<Self> {
                self.checked_sub(1)
            }
            fn prefixes(first: Self, last: Self, give: &mut dyn FnMut(Self, u8)) {
                let mut next = Some(first);
                while let Some(first) = next.filter(|first| *first <= last) {
                    let lengths = 0..=<$t>::BITS as u8;
                    let fits = |length: &u8| {
                        let host = <$t>::MAX.checked_shr((*length).into()).unwrap_or(0);
                        first & host == 0 && first.last(*length) <= last
                    };
                    // A single address always fits.
                    let length = lengths.into_iter().find(fits).unwrap_or(<$t>::BITS as u8);
                    give(first, length);
                    next = first.last(length).checked_add(1);
                }
            }
        }
    };
}
address!(u32);
address!(u128);

impl<K: Address> Rows<K> {
    fn get(&self, at: usize) -> Option<Row<K>> {
        let (first, length) = (*self.firsts.get(at)?, *self.lengths.get(at)?);
        Some(Row { first, last: first.last(length), length, attributes: *self.attributes.get(at)? })
    }

    fn iter(&self) -> impl Iterator<Item = Row<K>> + '_ {
        (0..self.firsts.len()).filter_map(|at| self.get(at))
    }

    fn push(&mut self, first: K, length: u8, attributes: u32) {
        self.firsts.push(first);
        self.lengths.push(length);
        self.attributes.push(attributes);
    }

    /// These rows with changes, which are in their order: what a prefix carries now, or that it is gone.
    fn with_changes(&self, changes: &[(K, u8, Option<u32>)]) -> Self {
        let room = self.firsts.len().saturating_add(changes.len());
        let mut rows = Self {
            firsts: Vec::with_capacity(room),
            lengths: Vec::with_capacity(room),
            attributes: Vec::with_capacity(room),
        };
        let mut from = 0usize;
        for (first, length, attributes) in changes {
            let at = self.place_of(from, *first, *length);
            rows.extend(self, from..at);
            let is_there =
                self.get(at).is_some_and(|row| (row.first, row.length) == (*first, *length));
            from = at.saturating_add(is_there.into());
            if let Some(attributes) = attributes {
                rows.push(*first, *length, *attributes);
            }
        }
        rows.extend(self, from..self.firsts.len());
        rows.shrink();
        rows
    }

    /// The first row from `from` on that is not before this prefix.
    fn place_of(&self, from: usize, first: K, length: u8) -> usize {
        let before = |rows: &[K]| rows.partition_point(|row| *row < first);
        let mut at = from.saturating_add(self.firsts.get(from..).map_or(0, before));
        while self.get(at).is_some_and(|row| row.first == first && row.length < length) {
            at = at.saturating_add(1);
        }
        at
    }

    fn extend(&mut self, from: &Self, rows: Range<usize>) {
        self.firsts.extend_from_slice(from.firsts.get(rows.clone()).unwrap_or_default());
        self.lengths.extend_from_slice(from.lengths.get(rows.clone()).unwrap_or_default());
        self.attributes.extend_from_slice(from.attributes.get(rows).unwrap_or_default());
    }

    fn is_behind(&self, first: K, length: u8) -> bool {
        self.firsts.last().zip(self.lengths.last()) < Some((&first, &length))
    }

    fn shrink(&mut self) {
        self.firsts.shrink_to_fit();
        self.lengths.shrink_to_fit();
        self.attributes.shrink_to_fit();
    }

    fn memory_bytes(&self) -> usize {
        let row = size_of::<K>().saturating_add(size_of::<u8>()).saturating_add(size_of::<u32>());
        self.firsts.capacity().saturating_mul(row)
    }
}

fn net_v4(first: u32, length: u8) -> IpNet {
    // A length that was that of a prefix once.
    IpNet::V4(Ipv4Net::new(first.into(), length).unwrap_or_default())
}

fn net_v6(first: u128, length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new(first.into(), length).unwrap_or_default())
}

#[derive(Default)]
struct Builder {
    table: RouteTable,
    /// By what they are; and, so that equal ones need not be compared again, by where they are.
    by_value: HashMap<Arc<Attributes>, u32>,
    by_place: HashMap<*const Attributes, u32>,
}

impl Builder {
    fn push(&mut self, prefix: IpNet, attributes: &Arc<Attributes>) {
        let (length, prefix) = (prefix.prefix_len(), prefix.trunc());
        match prefix.addr() {
            IpAddr::V4(first) if self.table.v4.is_behind(first.to_bits(), length) => {
                let at = self.intern(attributes);
                self.table.v4.push(first.to_bits(), length, at);
            }
            IpAddr::V6(first) if self.table.v6.is_behind(first.to_bits(), length) => {
                let at = self.intern(attributes);
                self.table.v6.push(first.to_bits(), length, at);
            }
            _ => {}
        }
    }

    fn intern(&mut self, attributes: &Arc<Attributes>) -> u32 {
        if let Some(at) = self.by_place.get(&Arc::as_ptr(attributes)) {
            return *at;
        }
        let known = &mut self.table.attributes;
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let at = *self.by_value.entry(Arc::clone(attributes)).or_insert(next);
        if at == next {
            known.push(Arc::clone(attributes));
        }
        // Only what the table keeps alive: another value may come to lie in the same place.
        if known.get(at as usize).is_some_and(|kept| Arc::ptr_eq(kept, attributes)) {
            self.by_place.insert(Arc::as_ptr(attributes), at);
        }
        at
    }

    fn finish(mut self) -> RouteTable {
        self.table.attributes.shrink_to_fit();
        self.table.v4.shrink();
        self.table.v6.shrink();
        self.table
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{AsPath, Communities, Origin};
    use super::*;

    fn attributes(asn: u32) -> Arc<Attributes> {
        Arc::new(Attributes {
            next_hop: "192.0.2.1".parse().unwrap(),
            origin: Origin::Igp,
            as_path: AsPath::sequence(&[asn]),
            med: None,
            local_pref: None,
            communities: Communities::default(),
        })
    }

    fn table(routes: &[(&str, u32)]) -> RouteTable {
        let routes: BTreeMap<IpNet, _> =
            routes.iter().map(|(net, asn)| (net.parse().unwrap(), attributes(*asn))).collect();
        RouteTable::from_ascending(routes.iter().map(|(net, of)| (*net, of)))
    }

    fn rows(table: &RouteTable) -> Vec<(String, u32)> {
        let row = |(net, of): (IpNet, &Arc<Attributes>)| {
            (net.to_string(), of.as_path.origin().unwrap().get())
        };
        table.iter().map(row).collect()
    }

    fn of(rows: &[(&str, u32)]) -> Vec<(String, u32)> {
        rows.iter().map(|(net, asn)| ((*net).to_owned(), *asn)).collect()
    }

    #[test]
    fn equal_attributes_are_kept_once_and_disorder_is_left_out() {
        let table = table(&[("10.0.0.0/8", 1), ("10.0.0.0/9", 2), ("::/0", 1), ("fe80::/10", 3)]);
        assert_eq!(table.attributes().len(), 3);
        assert_eq!(table.len(), (2, 2));
        let one = attributes(1);
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let odd = [net("10.0.0.0/8"), net("9.0.0.0/8"), net("10.0.0.0/8"), net("10.0.0.1/9")];
        let odd = RouteTable::from_ascending(odd.iter().map(|net| (*net, &one)));
        assert_eq!(rows(&odd), of(&[("10.0.0.0/8", 1), ("10.0.0.0/9", 1)]));
    }

    #[test]
    fn changes_put_replace_and_remove() {
        let old = table(&[("10.0.0.0/8", 1), ("10.0.0.0/9", 2), ("192.0.2.0/24", 1), ("::/0", 1)]);
        let change = |net: &str, asn: Option<u32>| (net.parse().unwrap(), asn.map(attributes));
        let new = old.with_changes([
            change("fe80::/10", Some(4)),
            change("10.0.0.0/9", None),
            change("10.0.0.0/8", None),
            change("10.0.0.0/8", Some(3)),
            change("11.0.0.0/8", None),
            change("9.0.0.0/8", Some(3)),
            change("9.0.0.0/8", Some(2)),
        ]);
        let expected = [("9.0.0.0/8", 2), ("10.0.0.0/8", 3), ("192.0.2.0/24", 1), ("::/0", 1)];
        assert_eq!(rows(&new), of(&[&expected[..], &[("fe80::/10", 4)]].concat()));
        let none = new.with_changes(new.iter().map(|(net, _)| (net, None)));
        assert!(none.is_empty() && none.attributes().is_empty());
    }

    #[test]
    fn changes_are_as_a_table_made_anew() {
        let mut dice = crate::Dice::seeded(7);
        let mut routes: BTreeMap<IpNet, Arc<Attributes>> = BTreeMap::new();
        let mut table = RouteTable::default();
        for _ in 0..300 {
            let change = |_| {
                let (bits, length) = (dice.below(64) as u32, 24 + dice.below(9) as u8);
                let net = match dice.below(2) {
                    0 => IpNet::new(IpAddr::V4((bits << 6).into()), length),
                    _ => IpNet::new(IpAddr::V6((u128::from(bits) << 90).into()), length + 12),
                };
                let what = dice.below(3) > 0;
                (net.unwrap().trunc(), what.then(|| attributes(1 + dice.below(9) as u32)))
            };
            let changes: Vec<Change> = (0..8).map(change).collect();
            for (net, what) in &changes {
                match what {
                    Some(what) => routes.insert(*net, Arc::clone(what)),
                    None => routes.remove(net),
                };
            }
            table = table.with_changes(changes);
            let anew = RouteTable::from_ascending(routes.iter().map(|(net, of)| (*net, of)));
            assert_eq!(rows(&table), rows(&anew));
            let distinct: std::collections::HashSet<_> = table.attributes().iter().collect();
            assert_eq!(distinct.len(), table.attributes().len());
            assert_eq!(table.attributes().len(), anew.attributes().len());
        }
    }

    /// The route of an address, slowly.
    fn find(table: &RouteTable, address: IpAddr) -> Option<u32> {
        let holding = table.iter().filter(|(net, _)| net.contains(&address));
        let longest = holding.max_by_key(|(net, _)| net.prefix_len())?;
        Some(longest.1.as_path.origin().unwrap().get())
    }

    #[test]
    fn below_the_frontier_the_new_holds_and_above_the_old() {
        let old = table(&[
            ("10.0.0.0/8", 1),
            ("10.1.0.0/16", 2),
            ("10.1.0.0/30", 3),
            ("10.1.0.8/29", 4),
            ("20.0.0.0/8", 5),
            ("::/0", 6),
        ]);
        let new = table(&[("0.0.0.0/0", 11), ("10.1.0.0/16", 12), ("10.1.0.4/32", 13)]);
        for at in [0u32, 0x0a00_0000, 0x0a01_0005, 0x0a01_0008, 0x0a02_0000, 0x1400_0001, u32::MAX]
        {
            let both = new.blend(&old, Some(at), Some(1 << 127));
            for probe in [
                0,
                1,
                0x0a00_0000,
                0x0a01_0000,
                0x0a01_0004,
                0x0a01_0005,
                0x0a01_0006,
                0x0a01_0007,
                0x0a01_0008,
                0x0a01_0010,
                0x0a02_0000,
                0x1400_0000,
                0x1400_0001,
                u32::MAX,
            ] {
                let address = IpAddr::V4(probe.into());
                let expected = find(if probe < at { &new } else { &old }, address);
                assert_eq!(find(&both, address), expected, "{address} at {at:x}");
            }
            assert_eq!(find(&both, "8000::".parse().unwrap()), Some(6));
            assert_eq!(find(&both, "7fff::".parse().unwrap()), None);
        }
        assert_eq!(rows(&new.blend(&old, None, None)), rows(&new));
        assert_eq!(rows(&new.blend(&old, Some(0), Some(0))), rows(&old));
    }
}
