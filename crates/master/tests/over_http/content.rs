//! What is served: whole files, ranges, preconditions, validators.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use mirror::ContentDigest;

use crate::client::{Place, content};

#[tokio::test]
async fn a_file_comes_whole_with_what_is_known_of_it() {
    let bytes = content(1, 700_000);
    let place = Place::with(&[("vlc/3.0/vlc.tar.xz", &bytes), ("empty", b"")]);
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let file = File::options().write(true).open(place.tree().join("vlc/3.0/vlc.tar.xz")).unwrap();
    file.set_modified(modified).unwrap();
    let master = place.start();
    let digest = ContentDigest::of(&bytes);

    for method in ["GET", "HEAD"] {
        let answer = master.ask(method, "/vlc/3.0/vlc.tar.xz", &[]).await;
        assert_eq!(answer.status, 200);
        for (name, value) in [
            ("content-length", "700000"),
            ("content-type", "application/x-xz"),
            ("etag", &digest.etag()),
            ("repr-digest", &digest.repr_digest()),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("accept-ranges", "bytes"),
        ] {
            assert_eq!(answer.field(name), value, "{method} {name}");
        }
        let expected: &[u8] = if method == "GET" { &bytes } else { b"" };
        assert!(answer.body == expected, "{method}");
    }
    let empty = master.get("/empty").await;
    assert_eq!((empty.status, empty.field("content-length")), (200, "0"));
    assert_eq!(empty.field("etag"), ContentDigest::of(b"").etag());
    // The query is no part of a file's name.
    assert_eq!(master.get("/vlc/3.0/vlc.tar.xz?mirror=1").await.status, 200);
    master.stop().await;
}

#[tokio::test]
async fn ranges() {
    let bytes = content(2, 300_000);
    let place = Place::with(&[("f", &bytes)]);
    let master = place.start();
    for (range, from, to) in [
        ("0-0", 0, 1),
        ("0-299999", 0, 300_000),
        ("100-199", 100, 200),
        ("262143-262144", 262_143, 262_145),
        ("299999-", 299_999, 300_000),
        ("250000-999999999", 250_000, 300_000),
        ("-1", 299_999, 300_000),
    ] {
        let answer = master.ask("GET", "/f", &[&format!("range: bytes={range}")]).await;
        assert_eq!(answer.status, 206, "{range}");
        assert_eq!(answer.field("content-range"), format!("bytes {from}-{}/300000", to - 1));
        assert!(answer.body == bytes[from..to], "{range}");
        assert_eq!(answer.field("etag"), ContentDigest::of(&bytes).etag());
    }

    let several = master.ask("GET", "/f", &["range: bytes=0-1,200000-200002"]).await;
    assert_eq!(several.status, 206);
    assert!(several.field("content-type").starts_with("multipart/byteranges; boundary="));
    for part in [&bytes[0..2], &bytes[200_000..200_003]] {
        assert!(several.body.windows(part.len()).any(|window| window == part));
    }
    assert_eq!(several.field("content-length"), several.body.len().to_string());

    let beyond = master.ask("GET", "/f", &["range: bytes=300000-"]).await;
    assert_eq!((beyond.status, beyond.field("content-range")), (416, "bytes */300000"));
    for ignored in ["bytes=5-1", "bytes=x", "lines=0-1"] {
        let answer = master.ask("GET", "/f", &[&format!("range: {ignored}")]).await;
        assert_eq!((answer.status, answer.body.len()), (200, 300_000), "{ignored}");
    }
    let head = master.ask("HEAD", "/f", &["range: bytes=0-0"]).await;
    assert_eq!((head.status, head.field("content-length")), (200, "300000"));
    master.stop().await;
}

#[tokio::test]
async fn preconditions() {
    let bytes = content(3, 1000);
    let place = Place::with(&[("f", &bytes)]);
    let master = place.start();
    let etag = ContentDigest::of(&bytes).etag();
    let modified = master.get("/f").await.field("last-modified").to_owned();
    let long_ago = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (fields, status) in [
        (vec![format!("if-match: {etag}")], 200),
        (vec![format!("if-match: \"other\", {etag}")], 200),
        (vec!["if-match: *".into()], 200),
        (vec!["if-match: \"other\"".into()], 412),
        (vec![format!("if-match: W/{etag}")], 412),
        (vec!["if-match: \"other\"".into(), "range: bytes=0-1".into()], 412),
        (vec![format!("if-match: {etag}"), "range: bytes=0-1".into()], 206),
        (vec![format!("if-none-match: {etag}")], 304),
        (vec![format!("if-none-match: W/{etag}")], 304),
        (vec!["if-none-match: *".into()], 304),
        (vec!["if-none-match: \"other\"".into()], 200),
        (vec![format!("if-modified-since: {modified}")], 304),
        (vec![format!("if-modified-since: {long_ago}")], 200),
        (vec![format!("if-unmodified-since: {modified}")], 200),
        (vec![format!("if-unmodified-since: {long_ago}")], 412),
        (vec![format!("if-range: {etag}"), "range: bytes=0-1".into()], 206),
        (vec!["if-range: \"other\"".into(), "range: bytes=0-1".into()], 200),
        (vec![format!("if-range: W/{etag}"), "range: bytes=0-1".into()], 200),
    ] {
        let fields: Vec<_> = fields.iter().map(String::as_str).collect();
        let answer = master.ask("GET", "/f", &fields).await;
        assert_eq!(answer.status, status, "{fields:?}");
        let length = match status {
            200 => 1000,
            206 => 2,
            _ => 0,
        };
        if status != 412 {
            assert_eq!(answer.body.len(), length, "{fields:?}");
            assert_eq!(answer.field("etag"), etag, "{fields:?}");
        }
    }
    master.stop().await;
}

#[tokio::test]
async fn two_masters_are_interchangeable_whatever_their_disks_say() {
    let bytes = content(4, 400_000);
    // Another file system where the machine has one.
    let elsewhere = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let one = Place::with(&[("f", &bytes)]);
    let two = Place::at(elsewhere, &[("other", b"so that inodes differ"), ("f", &bytes)]);
    let yesterday = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options()
        .write(true)
        .open(two.tree().join("f"))
        .unwrap()
        .set_modified(yesterday)
        .unwrap();
    let (one, two) = (one.start(), two.start());

    let first = one.ask("GET", "/f", &["range: bytes=0-199999"]).await;
    let if_match = format!("if-match: {}", first.field("etag"));
    let second = two.ask("GET", "/f", &["range: bytes=200000-", &if_match]).await;
    assert_eq!((first.status, second.status), (206, 206));
    for name in ["etag", "repr-digest", "content-type"] {
        assert_eq!(first.field(name), second.field(name));
        assert_ne!(first.field(name), "");
    }
    assert_ne!(first.field("last-modified"), second.field("last-modified"));
    assert!([first.body, second.body].concat() == bytes);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn names_are_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::with(&[
        ("a b/100%.txt", b"1"),
        ("caf\u{e9}", b"2"),
        ("q?x", b"3"),
        ("docs/index.html", b"4"),
    ]);
    let latin = place.tree().join(std::ffi::OsStr::from_bytes(b"latin\xe9"));
    fs::write(latin, "5").unwrap();
    let master = place.start();
    for (path, body) in [
        ("/a%20b/100%25.txt", "1"),
        ("/%61%20b/100%25.%74xt", "1"),
        ("/caf%C3%A9", "2"),
        ("/q%3Fx", "3"),
        ("/docs/", "4"),
        ("/docs/index.html", "4"),
        ("/latin%E9", "5"),
    ] {
        let answer = master.get(path).await;
        assert_eq!((answer.status, answer.body.as_slice()), (200, body.as_bytes()), "{path}");
    }
    master.stop().await;
}
