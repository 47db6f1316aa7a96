//! Files that change while they are being sent.

use std::fs::{self, File};
use std::io::{Seek, Write};

use mirror::ContentDigest;
use rt::metrics::master as metric;

use crate::client::{Place, content};

/// More than the sockets of both ends hold, so that the master is still sending.
const LONG: usize = 48 * 1024 * 1024;

#[tokio::test]
async fn a_file_replaced_by_rename_is_finished_as_it_was() {
    let (old, new) = (content(5, LONG), content(6, LONG));
    let place = Place::with(&[("f", &old)]);
    let master = place.start();
    let begun = master.begin("GET", "/f", &[]).await;
    assert_eq!(begun.answer.field("etag"), ContentDigest::of(&old).etag());
    fs::write(place.tree().join(".f.new"), &new).unwrap();
    fs::rename(place.tree().join(".f.new"), place.tree().join("f")).unwrap();

    let next = master.get("/f").await;
    assert_eq!(next.field("etag"), ContentDigest::of(&new).etag());
    assert!(next.body == new);
    let finished = begun.finish().await;
    assert!(!finished.broken && finished.body == old);
    // A range of the old content cannot be had any more, and that is said.
    let if_match = format!("if-match: {}", ContentDigest::of(&old).etag());
    assert_eq!(master.ask("GET", "/f", &[&if_match]).await.status, 412);
    assert_eq!(master.counter(&metric::BROKEN_OFF), 0);
    master.stop().await;
}

#[tokio::test]
async fn a_file_removed_is_finished_and_then_missing() {
    let bytes = content(7, LONG);
    let place = Place::with(&[("f", &bytes)]);
    let master = place.start();
    let begun = master.begin("GET", "/f", &[]).await;
    fs::remove_file(place.tree().join("f")).unwrap();
    assert_eq!(master.get("/f").await.status, 404);
    let finished = begun.finish().await;
    assert!(!finished.broken && finished.body == bytes);
    master.stop().await;
}

#[tokio::test]
async fn a_file_changed_in_place_breaks_the_transfer_off() {
    let bytes = content(8, LONG);
    let changes: [&dyn Fn(&mut File); 3] = [
        &|file| file.set_len(1024 * 1024).unwrap(),
        &|file| file.set_len(0).unwrap(),
        // Same length, other bytes at the end.
        &|file| {
            file.seek(std::io::SeekFrom::End(-9)).unwrap();
            file.write_all(b"different").unwrap();
        },
    ];
    for (at, change) in changes.iter().enumerate() {
        let place = Place::with(&[("f", &bytes)]);
        let master = place.start();
        let begun = master.begin("GET", "/f", &[]).await;
        change(&mut File::options().write(true).open(place.tree().join("f")).unwrap());
        let answer = begun.finish().await;
        assert!(answer.broken, "change {at}: {} bytes came", answer.body.len());
        assert!(bytes.starts_with(&answer.body), "change {at}: a byte of another content");
        assert_eq!(master.counter(&metric::BROKEN_OFF), 1, "change {at}");
        // What is there now is served under its own name.
        let now = fs::read(place.tree().join("f")).unwrap();
        let next = master.get("/f").await;
        assert_eq!(next.field("etag"), ContentDigest::of(&now).etag(), "change {at}");
        assert!(next.body == now, "change {at}");
        master.stop().await;
    }
}
