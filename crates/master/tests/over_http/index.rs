//! Each content is hashed once: not twice, not again after a restart, and again when it changed.

use std::fs::{self, File};

use mirror::ContentDigest;
use rt::metrics::master as metric;

use crate::client::{Place, content};

#[tokio::test]
async fn every_file_is_hashed_once_before_anybody_asks() {
    let (a, b) = (content(9, 5_000_000), content(10, 70_000));
    let place = Place::with(&[("a", &a), ("dir/deep/b", &b), (".hidden/c", b"x"), ("empty", b"")]);
    let master = place.start();
    master.scanned().await;
    assert_eq!(master.counter(&metric::HASHED_FILES), 3);
    assert_eq!(master.counter(&metric::HASHED_BYTES), 5_070_000);
    assert_eq!(master.metrics.gauge(&metric::INDEX_FILES, &[]).get(), 3);
    for (path, bytes) in [("/a", &a), ("/dir/deep/b", &b), ("/empty", &Vec::new())] {
        assert_eq!(master.get(path).await.field("etag"), ContentDigest::of(bytes).etag());
    }
    assert_eq!(master.counter(&metric::HASHED_FILES), 3);
    master.stop().await;
}

#[tokio::test]
async fn many_first_requests_at_once_hash_once() {
    let bytes = content(11, 3_000_000);
    let place = Place::with(&[("f", &bytes)]);
    let master = place.start();
    let get = || master.ask("GET", "/f", &["range: bytes=0-9"]);
    let answers = tokio::join!(get(), get(), get(), get(), get(), get(), get(), get());
    for answer in [&answers.0, &answers.3, &answers.7] {
        assert_eq!((answer.status, &answer.body[..]), (206, &bytes[..10]));
    }
    assert_eq!(master.counter(&metric::HASHED_FILES), 1);
    master.stop().await;
}

#[tokio::test]
async fn a_restart_hashes_nothing_but_what_changed() {
    let place = Place::with(&[("a", &content(12, 100_000)), ("b", b"b"), ("gone", b"gone")]);
    let master = place.start();
    master.scanned().await;
    assert_eq!(master.counter(&metric::HASHED_FILES), 3);
    master.stop().await;

    let master = place.start();
    master.scanned().await;
    assert_eq!(
        master.get("/a").await.field("etag"),
        ContentDigest::of(&content(12, 100_000)).etag()
    );
    assert_eq!(master.counter(&metric::HASHED_FILES), 0);
    master.stop().await;

    fs::write(place.tree().join("b"), "B").unwrap();
    fs::remove_file(place.tree().join("gone")).unwrap();
    let master = place.start();
    master.scanned().await;
    assert_eq!(master.counter(&metric::HASHED_FILES), 1);
    assert_eq!(master.metrics.gauge(&metric::INDEX_FILES, &[]).get(), 2);
    assert_eq!(master.get("/b").await.field("etag"), ContentDigest::of(b"B").etag());
    master.stop().await;
}

#[tokio::test]
async fn a_damaged_index_costs_hashing_and_nothing_else() {
    let place = Place::with(&[("a", b"a"), ("b", b"b")]);
    let master = place.start();
    master.scanned().await;
    master.stop().await;
    let index = place.state().join("content-index");
    let text = fs::read_to_string(&index).unwrap();
    for damaged in [text.replacen('2', "3", 1), text[..text.len() / 2].to_owned(), String::new()] {
        fs::write(&index, damaged).unwrap();
        let master = place.start();
        master.scanned().await;
        assert_eq!(master.counter(&metric::HASHED_FILES), 2);
        assert_eq!(master.get("/a").await.field("etag"), ContentDigest::of(b"a").etag());
        master.stop().await;
    }
}

#[tokio::test]
async fn a_change_that_hides_its_time_is_seen() {
    let place = Place::with(&[("f", b"before")]);
    let master = place.start();
    assert_eq!(master.get("/f").await.field("etag"), ContentDigest::of(b"before").etag());
    let path = place.tree().join("f");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    // As `rsync --inplace --times` does: same inode, same length, the time set back.
    fs::write(&path, b"after!").unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let answer = master.get("/f").await;
    assert_eq!(answer.body, b"after!");
    assert_eq!(answer.field("etag"), ContentDigest::of(b"after!").etag());
    assert_eq!(master.counter(&metric::HASHED_FILES), 2);
    master.stop().await;
}
