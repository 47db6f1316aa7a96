//! What is wrong in a file that a person wrote, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

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

impl Finding {
    /// A fault of a file or folder as a whole.
    pub fn whole(file: &Path, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (problem, remedy) = (problem.into(), remedy.into());
        Self { file: file.to_owned(), line: 0, key: String::new(), problem, remedy }
    }

    /// That a file's bytes are no text, and where they cease to be.
    pub fn not_utf8(file: &Path, error: &FromUtf8Error) -> Self {
        let valid = error.utf8_error().valid_up_to();
        let (before, rest) = error.as_bytes().split_at_checked(valid).unwrap_or_default();
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        let byte = rest.first().map_or_else(String::new, |byte| format!(": byte 0x{byte:02x}"));
        let remedy = "save it as UTF-8 (iconv -f ISO-8859-1 -t UTF-8 turns Latin-1 into it)";
        let finding = Self::whole(file, format!("is not UTF-8 text{byte}"), remedy);
        Self { line: lines.saturating_add(1), ..finding }
    }
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
