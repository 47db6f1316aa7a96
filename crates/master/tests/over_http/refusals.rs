//! What is not served, and how a lost tree is told from a missing file.

use std::fs;
use std::os::unix::fs::symlink;

use rt::metrics::master as metric;

use crate::client::Place;

/// Something done to the tree.
type Act<'a> = &'a dyn Fn();

#[tokio::test]
async fn what_is_no_content_is_refused() {
    let place = Place::with(&[("bare/f", b"x"), ("docs/index.html", b"x"), (".hidden/f", b"x")]);
    fs::write(place.dir.path().join("secret"), "secret").unwrap();
    symlink("../secret", place.tree().join("out")).unwrap();
    symlink("bare/f", place.tree().join("in")).unwrap();
    let master = place.start();
    for (path, status) in [
        ("/bare/f", 200),
        ("/in", 200),
        ("/none", 404),
        ("/none/", 404),
        ("/bare", 404),
        ("/bare/", 404),
        ("/docs", 404),
        ("/", 404),
        ("/bare/f/", 404),
        ("/bare//f", 404),
        ("/out", 404),
        ("/.cacheboy-tree", 404),
        ("/%2Ecacheboy-tree", 404),
        ("/.hidden/f", 404),
        ("/../secret", 400),
        ("/bare/../../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/bare/..%2f..%2fsecret", 400),
        ("/bare%00/f", 400),
        ("/bare%2ff", 400),
        ("/%zz", 400),
    ] {
        let answer = master.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(!answer.body.starts_with(b"secret"), "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = master.ask(method, "/bare/f", &["content-length: 0"]).await;
        assert_eq!((answer.status, answer.field("allow")), (405, "GET, HEAD"), "{method}");
    }
    assert_eq!(master.metrics.counter(&metric::REQUESTS, &["405"]).get(), 4);
    master.stop().await;
}

#[tokio::test]
async fn a_lost_tree_is_503_for_everything_until_it_is_back() {
    let place = Place::with(&[("f", b"content")]);
    let master = place.start();
    let tree_up = || master.metrics.gauge(&metric::TREE_UP, &[]).get();
    assert_eq!(master.get("/f").await.status, 200);
    assert_eq!(master.get("/.well-known/cacheboy/health").await.status, 200);
    assert_eq!(tree_up(), 1);

    let marker = place.tree().join(mirror::TREE_MARKER);
    let lose_and_restore: [(Act<'_>, Act<'_>); 3] = [
        // The disk is gone and the mount point with it.
        (&|| fs::rename(place.tree(), place.dir.path().join("away")).unwrap(), &|| {
            fs::rename(place.dir.path().join("away"), place.tree()).unwrap()
        }),
        // The disk is gone and the mount point is an empty directory.
        (
            &|| {
                fs::rename(place.tree(), place.dir.path().join("away")).unwrap();
                fs::create_dir(place.tree()).unwrap();
            },
            &|| {
                fs::remove_dir(place.tree()).unwrap();
                fs::rename(place.dir.path().join("away"), place.tree()).unwrap();
            },
        ),
        // Files are there, the marker is not: nobody knows what this is.
        (&|| fs::remove_file(&marker).unwrap(), &|| fs::write(&marker, "").unwrap()),
    ];
    for (lose, restore) in lose_and_restore {
        lose();
        for path in ["/f", "/none", "/", "/.cacheboy-tree", "/.well-known/cacheboy/health", "/a//b"]
        {
            for method in ["GET", "HEAD"] {
                let answer = master.ask(method, path, &[]).await;
                assert_eq!(answer.status, 503, "{method} {path}");
                assert_eq!(answer.field("retry-after"), "10", "{method} {path}");
            }
        }
        assert_eq!(tree_up(), 0);
        let status = master.status.show();
        assert_eq!(status["master"]["tree_state"], "lost");
        assert!(status["master"]["tree_lost_reason"].as_str().is_some_and(|why| !why.is_empty()));
        restore();
        let answer = master.get("/f").await;
        assert_eq!((answer.status, answer.body.as_slice()), (200, b"content".as_slice()));
        assert_eq!(master.get("/none").await.status, 404);
        assert_eq!(tree_up(), 1);
    }
    // Nothing was forgotten meanwhile.
    assert_eq!(master.counter(&metric::HASHED_FILES), 1);
    master.stop().await;
}

#[tokio::test]
async fn a_master_starts_without_its_tree_and_finds_it_later() {
    let place = Place::with(&[("f", b"content")]);
    let away = place.dir.path().join("away");
    fs::rename(place.tree(), &away).unwrap();
    let master = place.start();
    assert_eq!(master.get("/f").await.status, 503);
    fs::rename(&away, place.tree()).unwrap();
    assert_eq!(master.get("/f").await.status, 200);
    master.scanned().await;
    master.stop().await;
}
