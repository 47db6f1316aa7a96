//! Standard output, which may be a closed pipe or a full disk: an error like any other, not a panic.
//!
//! Much of what is said comes from other hosts and from files: it does not move the cursor of a
//! terminal or change its title.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Standard output cannot be written to.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub(crate) struct OutError(#[source] io::Error);

impl OutError {
    /// Whether the reader has gone (`| head`), which is no fault.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// A text without what a terminal would obey.
pub(crate) fn harmless(text: Arguments<'_>) -> String {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    text.to_string().replace(is_obeyed, "?")
}

/// Writes a line.
pub(crate) fn line(text: Arguments<'_>) -> Result<(), OutError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", harmless(text)).and_then(|()| out.flush()).map_err(OutError)
}

/// Writes what is ours to the last byte.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), OutError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(OutError)
}

/// Writes a line to standard output, as `println!` does, and returns an error when it cannot.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}
pub(crate) use say;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_is_said() {
        for (text, said) in [
            ("a\tb\r\nc \u{e4}\u{1f600}", "a\tb\r\nc \u{e4}\u{1f600}"),
            ("\u{1b}[2J\u{1b}]0;t\u{7}", "?[2J?]0;t?"),
            ("\u{9b}2J\u{7f}\u{8}\u{0}", "?2J???"),
        ] {
            assert_eq!(harmless(format_args!("{text}")), said);
        }
    }
}
