//! Files that are no database, or one no more: refused with a reason, never a panic.

use proptest::prelude::*;

use super::*;
use crate::{Locator, OpenError};

fn whole() -> Vec<u8> {
    let mut writer = Writer::new("Test", "a test", 0);
    for i in 0..40u8 {
        let record = map(&[
            ("country", map(&[("iso_code", text(["AU", "NZ", "JP"][usize::from(i) % 3]))])),
            ("autonomous_system_number", Value::U32(64_496 + u32::from(i))),
            ("autonomous_system_organization", text(&format!("Network number {i}"))),
        ]);
        writer.insert(format!("10.{i}.0.0/{}", 16 + i % 9).parse().unwrap(), &record);
        writer.insert(format!("2001:db8:{i:x}::/{}", 48 + i % 9).parse().unwrap(), &record);
    }
    writer.finish()
}

#[test]
fn what_is_missing_or_no_database_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.mmdb");
    let error = Locator::open(Some(&missing), None).unwrap_err();
    assert!(matches!(error, OpenError::Read { .. }));
    assert_eq!(
        error.to_string(),
        format!("cannot read {}: check its name and its permissions", missing.display())
    );
    // Neither would ever end.
    let zero = directory.path().join("zero.mmdb");
    std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
    let pipe = directory.path().join("pipe.mmdb");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for file in [zero, pipe] {
        let error = Locator::open(Some(&file), None).unwrap_err();
        assert!(matches!(&error, OpenError::Read { .. }), "{error}");
    }
    for bytes in [&b""[..], b"<html>quota exceeded</html>", &whole()[..200]] {
        let file = file_of(bytes);
        let error = Locator::open(path(&file), None).unwrap_err();
        assert!(matches!(error, OpenError::Format { .. }), "{error}");
        assert!(error.to_string().starts_with(&file.path().display().to_string()), "{error}");
    }
}

#[test]
fn a_search_tree_that_turns_in_circles_is_refused() {
    let mut bytes = whole();
    // 24-bit records: the root's right side leads back to the root.
    bytes[3..6].copy_from_slice(&[0, 0, 0]);
    let error = Locator::open(path(&file_of(&bytes)), None).unwrap_err();
    assert!(
        matches!(error, OpenError::Damaged { .. } | OpenError::TooManyNetworks { .. }),
        "{error}"
    );
}

proptest! {
    #[test]
    fn flipped_bytes_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let mut bytes = whole();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let provides = crate::Provides { country: true, asn: true };
        // Damage that makes another valid database cannot be told from one: both ends are right,
        // as long as what opened also answers.
        if let Ok(locator) = Locator::from_bytes(Path::new("flipped"), bytes, provides) {
            let last = locator.ranges_v4().last().map(|(_, last, _)| last);
            prop_assert_eq!(last, Some(u32::MAX));
        }
    }
}
