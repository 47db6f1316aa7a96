//! What is wrong in a file that a person wrote, and what to do about it.

use std::fmt;
use std::path::PathBuf;

/// One fault in a map or config file. Prints as `FILE:LINE: KEY: PROBLEM: REMEDY`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Line, from 1; 0 when the whole file is meant.
    pub line: usize,
    /// Dotted key, for example `node.mirror1-au.addresses`; empty when the whole file is meant.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}: {}", self.problem, self.remedy)
    }
}
