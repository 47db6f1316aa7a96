//! Pieces of a file into lines. Holds one unfinished line, of at most [`LINE_BYTES_MAX`].

use memchr::{memchr, memchr_iter};

use super::Fault;

/// A longer line is none: its bytes are passed over as they come.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Cuts pieces into lines, blank ones too.
#[derive(Debug, Default)]
pub struct Lines {
    /// The line that the last piece ended in.
    begun: Vec<u8>,
    /// It is too long, and its end has not come.
    is_passing_over: bool,
}

impl Lines {
    /// Whether the last piece ended with the end of a line.
    pub fn is_at_end_of_line(&self) -> bool {
        self.begun.is_empty() && !self.is_passing_over
    }

    /// Hands over each line that ends in `piece`, without its end.
    pub fn push(&mut self, piece: &[u8], mut each: impl FnMut(Result<&[u8], Fault>)) {
        let mut rest = piece;
        if !self.is_at_end_of_line() {
            let Some(end) = memchr(b'\n', piece) else { return self.begin(piece) };
            let (last, after) = piece.split_at_checked(end).unwrap_or((piece, &[]));
            self.begin(last);
            self.end(&mut each);
            rest = after.get(1..).unwrap_or_default();
        }
        let mut start = 0;
        for end in memchr_iter(b'\n', rest) {
            hand_over(rest.get(start..end).unwrap_or_default(), &mut each);
            start = end.saturating_add(1);
        }
        self.begin(rest.get(start..).unwrap_or_default());
    }

    /// No more pieces come: what was begun is a line too.
    pub fn end(&mut self, mut each: impl FnMut(Result<&[u8], Fault>)) {
        if std::mem::take(&mut self.is_passing_over) {
            each(Err(Fault::TooLong));
        } else if !self.begun.is_empty() {
            hand_over(&self.begun, &mut each);
        }
        self.begun.clear();
    }

    fn begin(&mut self, piece: &[u8]) {
        if self.is_passing_over {
            return;
        }
        if self.begun.len().saturating_add(piece.len()) > LINE_BYTES_MAX {
            self.begun = Vec::new();
            self.is_passing_over = true;
        } else {
            self.begun.extend_from_slice(piece);
        }
    }
}

fn hand_over(line: &[u8], each: &mut impl FnMut(Result<&[u8], Fault>)) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > LINE_BYTES_MAX {
        each(Err(Fault::TooLong));
    } else {
        each(Ok(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text that comes in pieces of `size`.
    fn cut(text: &[u8], size: usize) -> Vec<Result<Vec<u8>, Fault>> {
        let mut found = Vec::new();
        let mut lines = Lines::default();
        let mut each = |line: Result<&[u8], Fault>| found.push(line.map(<[u8]>::to_vec));
        for piece in text.chunks(size) {
            lines.push(piece, &mut each);
        }
        lines.end(&mut each);
        found
    }

    #[test]
    fn lines_are_the_same_however_they_are_cut() {
        let text = b"one\n\ntwo\r\n\r\nthree and more\nlast";
        let wanted =
            ["one", "", "two", "", "three and more", "last"].map(|l| Ok(l.as_bytes().to_vec()));
        for size in 1..=text.len() {
            assert_eq!(cut(text, size), wanted, "{size}");
        }
        assert!(cut(b"", 1).is_empty());
    }

    #[test]
    fn a_line_without_end_is_passed_over_and_the_next_is_read() {
        let text = [&vec![b'a'; LINE_BYTES_MAX + 1], b"\nnext\n".as_slice()].concat();
        for size in [1000, LINE_BYTES_MAX, text.len()] {
            assert_eq!(cut(&text, size), [Err(Fault::TooLong), Ok(b"next".to_vec())], "{size}");
        }
        let longest = vec![b'a'; LINE_BYTES_MAX];
        assert_eq!(cut(&longest, 4096), [Ok(longest.clone())]);
        let mut lines = Lines::default();
        lines.push(&text[..LINE_BYTES_MAX + 1], |_| panic!("it has not ended"));
        assert_eq!((lines.begun.capacity(), lines.is_at_end_of_line()), (0, false));
    }
}
