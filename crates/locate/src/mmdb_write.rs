//! Writes MaxMind-format databases (MaxMind DB file format 2.0): for tests, and for the example
//! that makes the shipped demo database.
//!
//! Equal values are written once and pointed to, as are map keys; so a database of a million
//! networks stays in the size of its search tree.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // only trusted input

use std::collections::HashMap;

use ipnet::IpNet;

/// A value of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// UTF-8 text.
    Text(String),
    /// Unsigned 16-bit number.
    U16(u16),
    /// Unsigned 32-bit number.
    U32(u32),
    /// Unsigned 64-bit number.
    U64(u64),
    /// Values by key, written in this order.
    Map(Vec<(&'static str, Value)>),
    /// Values in order.
    Array(Vec<Value>),
}

/// A database in the making: insert networks, then [`Writer::finish`].
#[derive(Debug)]
pub struct Writer {
    kind: String,
    description: String,
    build_s: u64,
    data: Data,
    /// Network as bits of an IPv6 address, prefix length, offset of its record.
    networks: Vec<(u128, u8, u32)>,
}

impl Writer {
    /// An empty database of type `kind` with an English description, built at Unix time `build_s`.
    pub fn new(kind: &str, description: &str, build_s: u64) -> Self {
        Self {
            kind: kind.to_owned(),
            description: description.to_owned(),
            build_s,
            data: Data::default(),
            networks: Vec::new(),
        }
    }

    /// Says that `record` holds for `network`, but for longer prefixes inside it, whatever the
    /// order of inserting. Inserted twice, the later counts.
    pub fn insert(&mut self, network: IpNet, record: &Value) {
        let offset = self.data.store(record);
        let (bits, length) = match network.trunc() {
            IpNet::V4(v4) => {
                (u128::from(v4.network().to_bits()), v4.prefix_len().saturating_add(96))
            }
            IpNet::V6(v6) => (v6.network().to_bits(), v6.prefix_len()),
        };
        self.networks.push((bits, length, offset));
    }

    /// The bytes of the database.
    pub fn finish(mut self) -> Vec<u8> {
        // Stable: of equal networks the later insertion stays later and wins.
        self.networks.sort_by_key(|(_, length, _)| *length);
        let mut tree = Tree::default();
        for (bits, length, offset) in &self.networks {
            tree.set(*bits, *length, Child::Data(*offset));
        }
        tree.alias_mapped();
        let (record_bits, mut out) = tree.write(self.data.bytes.len() as u64);
        out.extend([0; 16]);
        out.append(&mut self.data.bytes);
        out.extend(b"\xab\xcd\xefMaxMind.com");
        inline(&mut out, &self.metadata(record_bits, tree.nodes.len() as u32));
        out
    }

    fn metadata(&self, record_bits: u16, nodes: u32) -> Value {
        let text = |s: &str| Value::Text(s.to_owned());
        Value::Map(vec![
            ("binary_format_major_version", Value::U16(2)),
            ("binary_format_minor_version", Value::U16(0)),
            ("build_epoch", Value::U64(self.build_s)),
            ("database_type", text(&self.kind)),
            ("description", Value::Map(vec![("en", text(&self.description))])),
            ("ip_version", Value::U16(6)),
            ("languages", Value::Array(vec![text("en")])),
            ("node_count", Value::U32(nodes)),
            ("record_size", Value::U16(record_bits)),
        ])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Child {
    Empty,
    Node(u32),
    Data(u32),
}

/// The search tree: one bit a level, node 0 is the root.
#[derive(Debug)]
struct Tree {
    nodes: Vec<[Child; 2]>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![[Child::Empty; 2]] }
    }
}

impl Tree {
    /// Puts `child` at a prefix, splitting what covers it. Prefixes must come shortest first.
    fn set(&mut self, bits: u128, length: u8, child: Child) {
        if length == 0 {
            self.nodes[0] = [child; 2];
            return;
        }
        let mut node = 0;
        for depth in 0..length - 1 {
            node = self.descend(node, bit(bits, depth));
        }
        self.nodes[node][bit(bits, length - 1)] = child;
    }

    /// The node below `node` on `side`, made from what was there.
    fn descend(&mut self, node: usize, side: usize) -> usize {
        let below = self.nodes[node][side];
        if let Child::Node(next) = below {
            return next as usize;
        }
        let next = self.nodes.len();
        self.nodes.push([below; 2]);
        self.nodes[node][side] = Child::Node(next as u32);
        next
    }

    /// Lets readers that look up IPv4-mapped addresses as they are find the IPv4 networks.
    fn alias_mapped(&mut self) {
        let mut at = Child::Node(0);
        for _ in 0..96 {
            let Child::Node(node) = at else { return };
            at = self.nodes[node as usize][0];
        }
        if matches!(at, Child::Node(_)) {
            self.set(0xffff << 32, 96, at);
        }
    }

    /// Record size in bits, the smallest that fits, and the tree's bytes.
    fn write(&self, data_bytes: u64) -> (u16, Vec<u8>) {
        let nodes = self.nodes.len() as u64;
        let bits = match nodes + 16 + data_bytes {
            top if top < 1 << 24 => 24,
            top if top < 1 << 28 => 28,
            _ => 32,
        };
        let number = |child: Child| match child {
            Child::Empty => nodes as u32,
            Child::Node(n) => n,
            Child::Data(offset) => (nodes + 16) as u32 + offset,
        };
        let mut out = Vec::with_capacity(self.nodes.len() * usize::from(bits) / 4);
        for [left, right] in &self.nodes {
            let (left, right) = (number(*left), number(*right));
            match bits {
                24 => {
                    out.extend(&left.to_be_bytes()[1..]);
                    out.extend(&right.to_be_bytes()[1..]);
                }
                28 => {
                    out.extend(&left.to_be_bytes()[1..]);
                    out.push(((left >> 24) << 4 | right >> 24) as u8);
                    out.extend(&right.to_be_bytes()[1..]);
                }
                _ => {
                    out.extend(left.to_be_bytes());
                    out.extend(right.to_be_bytes());
                }
            }
        }
        (bits, out)
    }
}

fn bit(bits: u128, depth: u8) -> usize {
    (bits >> (127 - depth) & 1) as usize
}

/// The data section.
#[derive(Debug, Default)]
struct Data {
    bytes: Vec<u8>,
    offsets: HashMap<Value, u32>,
}

impl Data {
    /// Writes `value` unless it is there, and gives its offset.
    fn store(&mut self, value: &Value) -> u32 {
        if let Some(offset) = self.offsets.get(value) {
            return *offset;
        }
        let mut encoded = Vec::new();
        match value {
            Value::Map(fields) => {
                control(&mut encoded, 7, fields.len());
                for (key, value) in fields {
                    self.refer(&mut encoded, &Value::Text((*key).to_owned()));
                    self.refer(&mut encoded, value);
                }
            }
            Value::Array(items) => {
                control(&mut encoded, 11, items.len());
                items.iter().for_each(|item| self.refer(&mut encoded, item));
            }
            plain => inline(&mut encoded, plain),
        }
        let offset = self.bytes.len() as u32;
        self.bytes.append(&mut encoded);
        self.offsets.insert(value.clone(), offset);
        offset
    }

    /// Appends `value` to `out`: a pointer to it where that is shorter than the value itself.
    fn refer(&mut self, out: &mut Vec<u8>, value: &Value) {
        let short = match value {
            Value::Text(text) => text.len() < 4,
            Value::Map(_) | Value::Array(_) => false,
            Value::U16(_) | Value::U32(_) | Value::U64(_) => true,
        };
        if short { inline(out, value) } else { pointer(out, self.store(value)) }
    }
}

/// A pointer in the data section ("Data Field Format", type 1): the longer ones count from where
/// the shorter end.
fn pointer(out: &mut Vec<u8>, to: u32) {
    let tagged = |size: u8, top: u32| 1 << 5 | size << 3 | top as u8;
    match to {
        0..2_048 => {
            out.push(tagged(0, to >> 8));
            out.extend(&to.to_be_bytes()[3..]);
        }
        2_048..526_336 => {
            let to = to - 2_048;
            out.push(tagged(1, to >> 16));
            out.extend(&to.to_be_bytes()[2..]);
        }
        526_336..134_744_064 => {
            let to = to - 526_336;
            out.push(tagged(2, to >> 24));
            out.extend(&to.to_be_bytes()[1..]);
        }
        _ => {
            out.push(tagged(3, 0));
            out.extend(to.to_be_bytes());
        }
    }
}

/// Appends `value` whole, without pointers.
fn inline(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => {
            control(out, 2, text.len());
            out.extend(text.as_bytes());
        }
        Value::U16(n) => number(out, 5, &n.to_be_bytes()),
        Value::U32(n) => number(out, 6, &n.to_be_bytes()),
        Value::U64(n) => number(out, 9, &n.to_be_bytes()),
        Value::Map(fields) => {
            control(out, 7, fields.len());
            for (key, value) in fields {
                inline(out, &Value::Text((*key).to_owned()));
                inline(out, value);
            }
        }
        Value::Array(items) => {
            control(out, 11, items.len());
            items.iter().for_each(|item| inline(out, item));
        }
    }
}

/// Leading zero bytes are left out, as the format asks.
fn number(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    let skip = bytes.iter().take_while(|b| **b == 0).count();
    control(out, kind, bytes.len() - skip);
    out.extend(&bytes[skip..]);
}

/// The control bytes: type and size. Sizes up to 65,820 are enough here.
fn control(out: &mut Vec<u8>, kind: u8, size: usize) {
    let (short, rest) = match size {
        0..29 => (size as u8, [size as u8; 2]),
        29..285 => (29, [(size - 29) as u8; 2]),
        _ => (30, ((size - 285).min(0xffff) as u16).to_be_bytes()),
    };
    if kind > 7 {
        out.extend([short, kind - 7]);
    } else {
        out.push(kind << 5 | short);
    }
    match short {
        29 => out.push(rest[0]),
        30 => out.extend(rest),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_records_have_the_smallest_size_that_fits() {
        let mut tree = Tree::default();
        tree.set(1 << 127, 1, Child::Data(0x01_02_03));
        // One node: left empty (1), right data at 1 + 16 + offset.
        assert_eq!(tree.write(9), (24, vec![0, 0, 1, 1, 2, 0x14]));
        tree.set(1 << 127, 1, Child::Data(0x0201_0000));
        assert_eq!(tree.write(1 << 24), (28, vec![0, 0, 1, 0x02, 1, 0, 0x11]));
        assert_eq!(tree.write(1 << 28), (32, vec![0, 0, 0, 1, 2, 1, 0, 0x11]));
    }

    #[test]
    fn values_are_encoded_as_the_format_says() {
        let encoded = |value: &Value| {
            let mut out = Vec::new();
            inline(&mut out, value);
            out
        };
        assert_eq!(encoded(&Value::U32(0)), [6 << 5]);
        assert_eq!(encoded(&Value::U32(64_496)), [6 << 5 | 2, 0xfb, 0xf0]);
        assert_eq!(encoded(&Value::U64(1)), [1, 2, 1]);
        assert_eq!(encoded(&Value::Text("AU".into())), [2 << 5 | 2, b'A', b'U']);
        assert_eq!(encoded(&Value::Array(vec![Value::U16(5)])), [1, 4, 5 << 5 | 1, 5]);
        for (length, head) in [
            (28, vec![2 << 5 | 28]),
            (29, vec![2 << 5 | 29, 0]),
            (284, vec![2 << 5 | 29, 255]),
            (285, vec![2 << 5 | 30, 0, 0]),
            (542, vec![2 << 5 | 30, 1, 1]),
        ] {
            assert_eq!(encoded(&Value::Text("x".repeat(length)))[..head.len()], head, "{length}");
        }
    }

    #[test]
    fn pointers_count_from_where_the_shorter_end() {
        for (to, bytes) in [
            (0, vec![1 << 5, 0]),
            (2_047, vec![1 << 5 | 7, 0xff]),
            (2_048, vec![1 << 5 | 1 << 3, 0, 0]),
            (526_335, vec![1 << 5 | 1 << 3 | 7, 0xff, 0xff]),
            (526_336, vec![1 << 5 | 2 << 3, 0, 0, 0]),
            (134_744_063, vec![1 << 5 | 2 << 3 | 7, 0xff, 0xff, 0xff]),
            (134_744_064, vec![1 << 5 | 3 << 3, 8, 8, 8, 0]),
        ] {
            let mut out = Vec::new();
            pointer(&mut out, to);
            assert_eq!(out, bytes, "{to}");
        }
    }
}
