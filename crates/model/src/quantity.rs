//! How much and how fast: bytes and bits per second, with the units people write in maps.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A rate in bits per second, decimal units as networks count them: `"300 Mbit/s"`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Rate(pub u64);

/// A number of bytes. Reads decimal (`"20 TB"`) and binary (`"64 MiB"`) units.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct ByteCount(pub u64);

/// Why a quantity was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a rate.
    #[error("write a rate as a number and bit/s, kbit/s, Mbit/s, Gbit/s or Tbit/s: \"300 Mbit/s\"")]
    Rate,
    /// Not a number of bytes.
    #[error("write a size as a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB: \"64 MiB\"")]
    Bytes,
}

const RATE_UNITS: [(&str, u64); 5] = [
    ("Tbit/s", 1_000_000_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("kbit/s", 1_000),
    ("bit/s", 1),
];

/// By falling size, so that printing finds the shortest exact form first.
const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// A decimal number (at most six digits after the point) times `unit`, exact or `None`.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 6 {
        return None;
    }
    let scale = 10u128.pow(u32::try_from(part.len()).ok()?);
    let value = format!("{whole}{part}").parse::<u128>().ok()?.checked_mul(u128::from(unit))?;
    (value % scale == 0).then(|| u64::try_from(value / scale).ok()).flatten()
}

fn parse(s: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = s.split_once(' ')?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    scaled(number, *factor)
}

/// Prints with the largest unit of `units` that leaves a whole number.
fn print(value: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let exact = units.iter().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    match exact.or(units.last()) {
        Some((name, factor)) => f.pad(&format!("{} {name}", value / factor)),
        None => Ok(()),
    }
}

impl FromStr for Rate {
    type Err = QuantityError;
    fn from_str(s: &str) -> Result<Self, QuantityError> {
        parse(s, &RATE_UNITS).map(Self).ok_or(QuantityError::Rate)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, &RATE_UNITS, f)
    }
}

impl FromStr for ByteCount {
    type Err = QuantityError;
    fn from_str(s: &str) -> Result<Self, QuantityError> {
        parse(s, &BYTE_UNITS).map(Self).ok_or(QuantityError::Bytes)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, &BYTE_UNITS, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back() {
        for s in ["2 Gbit/s", "300 Mbit/s", "1500 kbit/s", "7 bit/s", "0 bit/s"] {
            assert_eq!(s.parse::<Rate>().unwrap().to_string(), s);
        }
        for s in ["20 TB", "64 MiB", "1023 B", "0 B"] {
            assert_eq!(s.parse::<ByteCount>().unwrap().to_string(), s);
        }
        assert_eq!("1.5 Gbit/s".parse::<Rate>(), Ok(Rate(1_500_000_000)));
        assert_eq!("0.5 KiB".parse::<ByteCount>(), Ok(ByteCount(512)));
    }

    #[test]
    fn what_is_not_exact_is_refused() {
        for bad in [
            "",
            "1",
            "1Gbit/s",
            "1 gbit/s",
            "-1 Gbit/s",
            "0.5 bit/s",
            "1e3 bit/s",
            ". B",
            "99999999999 TiB",
            "1.0000001 TB",
        ] {
            assert_eq!(bad.parse::<Rate>(), Err(QuantityError::Rate), "{bad}");
            assert_eq!(bad.parse::<ByteCount>(), Err(QuantityError::Bytes), "{bad}");
        }
    }
}
