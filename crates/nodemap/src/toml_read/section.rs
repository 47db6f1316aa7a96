//! The keys that a table may have, as the reader and the reference pages know them.

/// One key of a [`Section`].
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name; a name in capitals stands for any key (`NODE = weight`).
    pub name: &'static str,
    /// What its value is, limits included.
    pub kind: &'static str,
    /// What holds when it is left out, or `required`.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// Shorthand for the tables of keys.
pub const fn key(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key { name, kind, default, meaning }
}

impl Key {
    pub(super) fn is_placeholder(&self) -> bool {
        self.name.bytes().all(|b| b.is_ascii_uppercase() || b == b'-')
    }
}

/// A table of a TOML file and the keys it may have.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// As it is written, for example `[node.NAME]`.
    pub header: &'static str,
    /// All keys that are known there.
    pub keys: &'static [Key],
}

impl Section {
    /// The reference table of this section, as the pages in `docs/` carry it.
    pub fn markdown(&self) -> String {
        let mut out = String::from("| key | value | default | meaning |\n|---|---|---|---|\n");
        for key in self.keys {
            let Key { name, kind, default, meaning } = key;
            out.push_str(&format!("| `{name}` | {kind} | {default} | {meaning} |\n"));
        }
        out
    }
}
