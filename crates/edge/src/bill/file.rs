//! The month in a file of `state_dir`: whole or absent, always of one length. `docs/formats/bill.md`.

use std::io;
use std::path::{Path, PathBuf};

use super::month::{Month, SAMPLES_MAX, Sample};

/// Its name.
const NAME: &str = "bill";
/// What it is renamed to when it cannot be used.
const ASIDE: &str = "bill.damaged";

const MAGIC: &[u8; 8] = b"CBMONTH\n";
const VERSION: u32 = 1;
/// Magic, version, first known sample, start of the month.
const HEAD_BYTES: usize = 8 + 4 + 4 + 8;
const SAMPLE_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
const FILE_BYTES: usize = HEAD_BYTES + SAMPLES_MAX * SAMPLE_BYTES + CRC_BYTES;

/// Why a file cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// Not what was written.
    #[error("it is damaged")]
    Damaged,
    /// Of a newer program.
    #[error("it has version {0}, newer than this program writes ({VERSION})")]
    Newer(u32),
}

/// Where the month is kept.
#[derive(Debug)]
pub(super) struct Keep(PathBuf);

impl Keep {
    pub(super) fn of(state_dir: &Path) -> Self {
        Self(state_dir.join(NAME))
    }

    /// The month that was written last. One that cannot be used is put aside, and said.
    pub(super) fn read(&self) -> Option<Month> {
        let path = self.0.display();
        let max = u64::try_from(FILE_BYTES).unwrap_or(u64::MAX);
        let parsed = match rt::file::read_bounded(&self.0, max) {
            Ok(bytes) => parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(Unusable::Damaged),
            Err(error) => {
                tracing::error!(%path, %error, "what the month has used cannot be read");
                return None;
            }
        };
        let why = match parsed {
            Ok(month) => return Some(month),
            Err(why) => why,
        };
        let aside = self.0.with_file_name(ASIDE);
        let moved = std::fs::rename(&self.0, &aside);
        tracing::error!(
            %path, %why, aside = %aside.display(), kept = moved.is_ok(),
            "what the month has used is not known: its rest may use its share and no more"
        );
        None
    }

    /// # Errors
    /// When it cannot be written; what was there is there still.
    pub(super) fn write(&self, month: &Month) -> io::Result<()> {
        rt::file::write_atomic(&self.0, &bytes(month))
    }
}

fn bytes(month: &Month) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(month.since).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&month.start_s.to_le_bytes());
    let none = std::iter::repeat(&Sample { received: 0, sent: 0 });
    for sample in month.samples.iter().chain(none).take(SAMPLES_MAX) {
        bytes.extend_from_slice(&sample.received.to_le_bytes());
        bytes.extend_from_slice(&sample.sent.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8]) -> Result<Month, Unusable> {
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(Unusable::Damaged)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or(Unusable::Damaged)?;
    match (magic == MAGIC, u32::from_le_bytes(*version)) {
        (false, _) => return Err(Unusable::Damaged),
        (true, newer) if newer > VERSION => return Err(Unusable::Newer(newer)),
        (true, _) => {}
    }
    let (whole, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(Unusable::Damaged)?;
    if bytes.len() != FILE_BYTES || crc32c::crc32c(whole) != u32::from_le_bytes(*crc) {
        return Err(Unusable::Damaged);
    }
    let (since, rest) = rest.split_first_chunk::<4>().ok_or(Unusable::Damaged)?;
    let (start_s, rest) = rest.split_first_chunk::<8>().ok_or(Unusable::Damaged)?;
    let start_s = u64::from_le_bytes(*start_s);
    let mut month = Month::beginning(start_s);
    month.since = usize::try_from(u32::from_le_bytes(*since)).map_err(|_| Unusable::Damaged)?;
    if month.start_s != start_s || month.since >= month.count() {
        return Err(Unusable::Damaged);
    }
    let read = rest.as_chunks::<8>().0.as_chunks::<2>().0;
    for (sample, [received, sent]) in month.samples.iter_mut().zip(read) {
        let (received, sent) = (u64::from_le_bytes(*received), u64::from_le_bytes(*sent));
        *sample = Sample { received, sent };
    }
    Ok(month)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "these are tests")]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_793_491_200 + 100_000;

    fn month() -> Month {
        let mut month = Month::beginning(NOW_S);
        month.add(Sample { received: 1, sent: u64::MAX }, NOW_S);
        month.add(Sample { received: 7, sent: 8 }, NOW_S + 400);
        month
    }

    #[test]
    fn what_is_written_reads_back_and_nothing_else_does() {
        let written = bytes(&month());
        assert_eq!((written.len(), parse(&written)), (142_876, Ok(month())));
        for at in [0, 8, 12, 16, 24, 5000, written.len() - 1] {
            let mut damaged = written.clone();
            damaged[at] ^= 0x10;
            assert!(parse(&damaged).is_err(), "{at}");
        }
        for length in [0, 7, 11, 20, 100, written.len() - 1] {
            assert_eq!(parse(&written[..length]), Err(Unusable::Damaged), "{length}");
        }
        let mut newer = written;
        newer[8] = 2;
        assert_eq!(parse(&newer), Err(Unusable::Newer(2)));
    }

    #[test]
    fn a_damaged_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::of(folder.path());
        assert_eq!(keep.read(), None);
        keep.write(&month()).unwrap();
        assert_eq!(keep.read(), Some(month()));
        std::fs::write(folder.path().join(NAME), "all of it is gone").unwrap();
        assert_eq!(keep.read(), None);
        let aside = std::fs::read(folder.path().join(ASIDE)).unwrap();
        assert_eq!(aside, b"all of it is gone");
        assert!(!folder.path().join(NAME).exists());
    }
}
