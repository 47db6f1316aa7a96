//! Standard output, which may be a closed pipe or a full disk: an error like any other, not a panic.

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

/// Writes a line.
pub(crate) fn line(text: Arguments<'_>) -> Result<(), OutError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(OutError)
}

/// Writes a line to standard output, as `println!` does, and returns an error when it cannot.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}
pub(crate) use say;
