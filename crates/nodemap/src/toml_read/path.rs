//! Dotted keys.

use std::fmt::{self, Display};

use crate::words::clip;

/// One step of a [`KeyPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into a table.
    Key(String),
    /// Into a list.
    Index(usize),
}

/// Where in a document something stands. Prints as a dotted key, list positions left out because
/// the line shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPath(pub Vec<Step>);

impl KeyPath {
    /// The path of these keys.
    pub fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|k| Step::Key((*k).to_owned())).collect())
    }

    /// This path and one key more.
    pub fn key(mut self, key: impl Display) -> Self {
        self.0.push(Step::Key(key.to_string()));
        self
    }

    /// This path and one list position more.
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Step::Index(index));
        self
    }
}

impl Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key),
            Step::Index(_) => None,
        });
        let dotted = keys.fold(String::new(), |path, key| join(&path, key));
        f.write_str(&dotted)
    }
}

/// `path.key`, the key in quotes when it is not a bare one.
pub(crate) fn join(path: &str, key: &str) -> String {
    let key = bare_or_quoted(&clip(key));
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// A key as TOML writes it.
pub(crate) fn bare_or_quoted(key: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !key.is_empty() && key.bytes().all(bare) { key.to_owned() } else { format!("{key:?}") }
}
