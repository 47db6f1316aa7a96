//! The content index: path -> stamp and digest, in memory and as a text on disk.
//!
//! Invariants:
//! - a digest is believed only under the exact [`Stamp`] it was computed under;
//! - the text is read whole or not at all: a torn, altered or newer text is an [`IndexError`], and
//!   its owner starts with an empty index and hashes again. The index is derived data; losing it
//!   costs time, never truth.
//!
//! Text, one line each, fields parted by one space, numbers in decimal, times in nanoseconds:
//!
//! ```text
//! cacheboy-content-index 1
//! SHA256HEX SIZE MTIME_NS CTIME_NS INODE PERCENT-ENCODED-PATH
//! end SHA256HEX-OF-ALL-LINES-ABOVE
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::digest::ContentDigest;
use crate::path::TreePath;

/// First word of the first line.
const MAGIC: &str = "cacheboy-content-index";
/// Version written, and the only one read.
const VERSION: u32 = 1;
/// How long a file must have been left alone before it is hashed, in milliseconds. Kernels stamp
/// files with a clock that ticks each 1 to 10 ms: two writes within one tick look like one.
const SETTLE_MS: u64 = 50;

/// What a file system says of a file. Two equal stamps of one path mean: not written in between.
///
/// The change time is in it because a writer can set the modification time back (rsync does) but
/// not the change time. The price: a `chmod` or a new hard link makes the file hashed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Length in bytes.
    pub size: u64,
    /// Last modification, nanoseconds since 1970; negative before.
    pub mtime_ns: i128,
    /// Last change of content, name or mode, nanoseconds since 1970.
    pub ctime_ns: i128,
    /// Inode number.
    pub inode: u64,
}

impl Stamp {
    /// Milliseconds to wait at `wall_ms` before this stamp tells any later write: 0 when the file
    /// was left alone for long enough. A change time in the future (a clock that was set back)
    /// cannot be waited for, and need not be: a write from now on moves it.
    pub fn settles_in_ms(&self, wall_ms: u64) -> u64 {
        let changed_ms = self.ctime_ns.checked_div(1_000_000).unwrap_or_default();
        let apart_ms = i128::from(wall_ms).abs_diff(changed_ms);
        SETTLE_MS.saturating_sub(u64::try_from(apart_ms).unwrap_or(u64::MAX))
    }

    /// Whether a file opened under this stamp still has the content it had, judged by a later
    /// stamp of the same open file.
    ///
    /// The change time is left out: it moves when the file's name is replaced or removed, and the
    /// old content is then finished undisturbed.
    pub fn same_content_as(&self, later: &Stamp) -> bool {
        (self.size, self.mtime_ns, self.inode) == (later.size, later.mtime_ns, later.inode)
    }
}

/// Why a text is no index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The first line is not ours.
    #[error("not a content index")]
    Foreign,
    /// Written by another version of this program.
    #[error("content index of version {0}, this program reads version {VERSION}")]
    Version(u32),
    /// A line that cannot be read; the number counts from 1.
    #[error("line {0} of the content index is broken")]
    Line(usize),
    /// The last line is missing or its checksum is not that of the lines above.
    #[error("the content index is cut short or altered")]
    Checksum,
}

/// Digests of the files of one tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    files: BTreeMap<TreePath, (Stamp, ContentDigest)>,
}

impl Index {
    /// The digest of the file at `path`, if it was hashed while it had this very stamp.
    pub fn get(&self, path: &TreePath, stamp: &Stamp) -> Option<ContentDigest> {
        self.files.get(path).filter(|(known, _)| known == stamp).map(|(_, digest)| *digest)
    }

    /// Remembers that the file at `path` had this digest under this stamp.
    pub fn insert(&mut self, path: TreePath, stamp: Stamp, digest: ContentDigest) {
        self.files.insert(path, (stamp, digest));
    }

    /// Forgets the file at `path`; whether it was known.
    pub fn remove(&mut self, path: &TreePath) -> bool {
        self.files.remove(path).is_some()
    }

    /// Every path known, in order.
    pub fn paths(&self) -> impl Iterator<Item = &TreePath> {
        self.files.keys()
    }

    /// Number of files known.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether no file is known.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The text of the index: the same files give the same bytes.
    pub fn to_text(&self) -> String {
        let mut text = format!("{MAGIC} {VERSION}\n");
        for (path, (stamp, digest)) in &self.files {
            let Stamp { size, mtime_ns, ctime_ns, inode } = stamp;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{digest} {size} {mtime_ns} {ctime_ns} {inode} {path}");
        }
        let sum = ContentDigest::of(text.as_bytes());
        let _ = writeln!(text, "end {sum}");
        text
    }

    /// Reads a text that [`Index::to_text`] wrote.
    pub fn from_text(text: &str) -> Result<Self, IndexError> {
        let first = text.lines().next().ok_or(IndexError::Foreign)?;
        let version = first
            .strip_prefix(MAGIC)
            .and_then(|rest| rest.trim().parse().ok())
            .ok_or(IndexError::Foreign)?;
        if version != VERSION {
            return Err(IndexError::Version(version));
        }
        let body = checked_body(text).ok_or(IndexError::Checksum)?;
        let mut index = Self::default();
        for (at, line) in body.lines().enumerate().skip(1) {
            let broken = IndexError::Line(at.saturating_add(1));
            let (path, stamp, digest) = parse_line(line).ok_or(broken)?;
            index.insert(path, stamp, digest);
        }
        Ok(index)
    }
}

/// All lines above the `end` line, when its checksum is theirs.
fn checked_body(text: &str) -> Option<&str> {
    let without_newline = text.strip_suffix('\n')?;
    let end_at = without_newline.rfind('\n')?.checked_add(1)?;
    let body = text.get(..end_at)?;
    let sum = without_newline.get(end_at..)?.strip_prefix("end ")?;
    (ContentDigest::from_hex(sum)? == ContentDigest::of(body.as_bytes())).then_some(body)
}

/// One file's line.
fn parse_line(line: &str) -> Option<(TreePath, Stamp, ContentDigest)> {
    let mut fields = line.split(' ');
    let digest = ContentDigest::from_hex(fields.next()?)?;
    let stamp = Stamp {
        size: fields.next()?.parse().ok()?,
        mtime_ns: fields.next()?.parse().ok()?,
        ctime_ns: fields.next()?.parse().ok()?,
        inode: fields.next()?.parse().ok()?,
    };
    let path = TreePath::from_request(&format!("/{}", fields.next()?)).ok()?;
    fields.next().is_none().then_some((path, stamp, digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp(size: u64) -> Stamp {
        Stamp { size, mtime_ns: -5, ctime_ns: 1_764_500_000_123_456_789, inode: 42 }
    }

    fn path(request: &str) -> TreePath {
        TreePath::from_request(request).unwrap()
    }

    fn sample() -> Index {
        let mut index = Index::default();
        index.insert(path("/b%20c"), stamp(3), ContentDigest::of(b"abc"));
        index.insert(path("/a/%ff%25"), stamp(0), ContentDigest::of(b""));
        index
    }

    #[test]
    fn a_digest_is_believed_under_its_own_stamp_only() {
        let index = sample();
        let was = stamp(3);
        assert_eq!(index.get(&path("/b%20c"), &was), Some(ContentDigest::of(b"abc")));
        let moved = [
            Stamp { size: 4, ..was },
            Stamp { mtime_ns: -4, ..was },
            Stamp { ctime_ns: 0, ..was },
            Stamp { inode: 43, ..was },
        ];
        for stamp in moved {
            assert_eq!(index.get(&path("/b%20c"), &stamp), None, "{stamp:?}");
        }
        assert_eq!(index.get(&path("/other"), &was), None);
    }

    #[test]
    fn a_file_just_written_is_left_to_settle() {
        let was = stamp(3);
        let ctime_ms = 1_764_500_000_123;
        for (wall_ms, wait_ms) in [
            (ctime_ms, 50),
            (ctime_ms + 20, 30),
            (ctime_ms + 50, 0),
            (ctime_ms + 90_000, 0),
            (ctime_ms - 1, 49),
            (ctime_ms - 60_000, 0),
            (0, 0),
        ] {
            assert_eq!(was.settles_in_ms(wall_ms), wait_ms, "{wall_ms}");
        }
    }

    #[test]
    fn an_open_file_keeps_its_content_when_only_its_name_changes() {
        let was = stamp(3);
        assert!(was.same_content_as(&Stamp { ctime_ns: 7, ..was }));
        assert!(!was.same_content_as(&Stamp { size: 2, ..was }));
        assert!(!was.same_content_as(&Stamp { mtime_ns: 7, ..was }));
    }

    #[test]
    fn the_text_is_this_and_reads_back() {
        let text = sample().to_text();
        let (body, end) = text.split_at(text.rfind("end ").unwrap());
        assert_eq!(
            body,
            "cacheboy-content-index 1\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 \
             0 -5 1764500000123456789 42 a/%FF%25\n\
             ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad \
             3 -5 1764500000123456789 42 b%20c\n"
        );
        assert_eq!(end, format!("end {}\n", ContentDigest::of(body.as_bytes())));
        assert_eq!(Index::from_text(&text), Ok(sample()));
        assert_eq!(Index::from_text(&Index::default().to_text()), Ok(Index::default()));
    }

    #[test]
    fn a_doubtful_text_is_refused() {
        let seal = |body: &str| format!("{body}end {}\n", ContentDigest::of(body.as_bytes()));
        let cases = [
            (String::new(), IndexError::Foreign),
            ("{}".to_owned(), IndexError::Foreign),
            (seal("cacheboy-content-index 2\n"), IndexError::Version(2)),
            ("cacheboy-content-index 1\n".to_owned(), IndexError::Checksum),
            (seal("cacheboy-content-index 1\nnonsense\n"), IndexError::Line(2)),
            (sample().to_text().replace(" 42 ", " 43 "), IndexError::Checksum),
        ];
        for (text, error) in cases {
            assert_eq!(Index::from_text(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn files_that_are_gone_are_forgotten() {
        let mut index = sample();
        assert!(index.remove(&path("/b%20c")));
        assert!(!index.remove(&path("/b%20c")));
        assert!(index.paths().eq([&path("/a/%ff%25")]));
        assert_eq!(index.get(&path("/b%20c"), &stamp(3)), None);
    }

    proptest! {
        /// However a text is cut, what is read is all of it or nothing.
        #[test]
        fn no_cut_text_is_read(cut in 0usize..300) {
            let text = sample().to_text();
            let cut = cut.min(text.len().saturating_sub(1));
            prop_assert!(Index::from_text(&text[..cut]).is_err());
        }
    }
}
