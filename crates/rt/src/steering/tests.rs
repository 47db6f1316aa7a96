//! Views over real files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use locate::Evidence;
use locate::mmdb_write::Writer;
use model::CountryCode;
use nodemap::NodeMap;
use tokio::sync::watch;

use super::{LocationParams, SteeringError, Watched, start};
use crate::Context;

fn node_map(generation: u64) -> Arc<NodeMap> {
    Arc::new(nodemap::testing::node_map(generation))
}

/// Writes a database that puts `prefix` into Germany.
fn write_database(path: &Path, prefix: &str) {
    let country: CountryCode = "DE".parse().unwrap();
    let evidence = Evidence { asn: None, country: Some(country), continent: country.continent() };
    let mut writer = Writer::new("Test", "test", 0);
    writer.insert(prefix.parse().unwrap(), &locate::testing::record(evidence, None));
    crate::file::write_atomic(path, &writer.finish()).unwrap();
}

fn context(dir: &Path) -> Context {
    Context::new("test".parse().unwrap(), dir.to_owned())
}

fn country(watched: &Watched, address: &str) -> Option<String> {
    let address: IpAddr = address.parse().unwrap();
    let location = watched.view().unwrap().locator.locate(address);
    location.country.map(|country| country.to_string())
}

#[tokio::test]
async fn new_maps_and_databases_make_new_views_and_bad_databases_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("country.mmdb");
    write_database(&path, "192.0.2.0/24");
    let context = context(dir.path());
    let (maps, following) = watch::channel(None);
    let location = LocationParams { country: Some(path.clone()), ..LocationParams::default() };
    let mut watched = start(location, following, &context).await.unwrap();
    assert!(watched.view().is_none());

    maps.send_replace(Some(node_map(7)));
    watched.changed().await.unwrap();
    let first = watched.view().unwrap();
    assert_eq!((first.number, first.steering.map().generation), (1, 7));
    assert_eq!(country(&watched, "192.0.2.1").as_deref(), Some("DE"));

    std::fs::write(&path, b"not a database").unwrap();
    while watched.errors()["location"].is_null() {
        tokio::task::yield_now().await;
    }
    assert!(watched.errors()["location"].as_str().unwrap().contains("country.mmdb"));
    let errors = r#"cacheboy_host_steering_errors_total{source="location"} 1"#;
    assert!(context.metrics.render().contains(errors));
    assert!(Arc::ptr_eq(&first, &watched.view().unwrap()));

    write_database(&path, "203.0.113.0/24");
    watched.changed().await.unwrap();
    assert_eq!(watched.view().unwrap().number, 2);
    assert_eq!(country(&watched, "203.0.113.1").as_deref(), Some("DE"));
    assert_eq!(country(&watched, "192.0.2.1"), None);
    assert_eq!(context.status.show()["steering"]["databases"][0]["networks"], 1);

    // A replaced view goes once its last reader has gone, and not before.
    let old = Arc::downgrade(&first);
    assert!(old.upgrade().is_some());
    drop(first);
    while old.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
    context.shutdown.end_soon();
    assert!(watched.changed().await.is_err());
}

/// S3: what moves too many waits for a person's word, and that word is for nothing else.
#[tokio::test]
async fn a_database_that_moves_many_waits_for_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("country.mmdb");
    write_database(&path, "192.0.2.0/24");
    let context = context(dir.path());
    let mut map = nodemap::testing::node_map(1);
    let rules = map.map.maps.values_mut().next().unwrap();
    rules.country.insert("DE".parse().unwrap(), vec!["other".parse().unwrap()]);
    let (_maps, following) = watch::channel(Some(Arc::new(map)));
    let location = LocationParams { country: Some(path.clone()), ..LocationParams::default() };
    let mut watched = start(location, following, &context).await.unwrap();
    let error = async |watched: &Watched, part: &str| {
        while !watched.errors()["location"].as_str().is_some_and(|text| text.contains(part)) {
            tokio::task::yield_now().await;
        }
    };
    let confirm = async || {
        let asked = context.status.act("/location/confirm", bytes::Bytes::new());
        asked.await.unwrap().0.as_u16()
    };
    assert_eq!(confirm().await, 409, "nothing waits");

    // Half of what is known was not known before.
    write_database(&path, "192.0.2.0/23");
    error(&watched, "50 % of all known addresses").await;
    assert_eq!(country(&watched, "192.0.3.1"), None);
    assert_eq!(context.status.show()["steering"]["databases_held_percent"], 50);
    assert!(context.metrics.render().contains("cacheboy_host_databases_held_percent 50"));
    // What moves little is taken at once, and then nothing waits.
    write_database(&path, "192.0.2.0/24");
    watched.changed().await.unwrap();
    assert!(watched.errors()["location"].is_null());
    assert_eq!(confirm().await, 409);

    write_database(&path, "203.0.113.0/24");
    error(&watched, "100 % of all known addresses").await;
    assert_eq!(confirm().await, 200);
    watched.changed().await.unwrap();
    assert_eq!(country(&watched, "203.0.113.1").as_deref(), Some("DE"));
    assert!(watched.errors()["location"].is_null());
    // The word was for that one.
    write_database(&path, "198.51.100.0/24");
    error(&watched, "100 % of all known addresses").await;
    assert_eq!(country(&watched, "203.0.113.1").as_deref(), Some("DE"));
}

#[tokio::test]
async fn an_override_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut map = nodemap::testing::node_map(1);
    let end_ms = crate::clock::now().wall_ms + 300;
    let rules = map.map.maps.values_mut().next().unwrap();
    rules.overrides.push(nodemap::Override {
        prefix: "192.0.2.0/24".parse().unwrap(),
        pools: vec!["other".parse().unwrap()],
        owner: "noc".to_owned(),
        reason: "a test".to_owned(),
        expires_ms: Some(end_ms),
    });
    let (_maps, following) = watch::channel(Some(Arc::new(map)));
    let mut watched =
        start(LocationParams::default(), following, &context(dir.path())).await.unwrap();
    let scope = |watched: &Watched| {
        let view = watched.view().unwrap();
        view.steering.table().lookup("192.0.2.1".parse().unwrap()).scope
    };
    assert_eq!(scope(&watched), 24);
    watched.changed().await.unwrap();
    assert!(crate::clock::now().wall_ms >= end_ms);
    assert_eq!(scope(&watched), 0);
}

#[tokio::test]
async fn a_guard_is_counted_and_goes_on_counting_with_a_new_map() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    let guarded = |generation| {
        let mut map = nodemap::testing::node_map(generation);
        let project = map.map.projects.values_mut().next().unwrap();
        let share = nodemap::MaxShare { nodes: Some(10), sites: None, window_s: 60 };
        project.max_share = Some(share);
        Arc::new(map)
    };
    let (maps, following) = watch::channel(Some(guarded(1)));
    let mut watched = start(LocationParams::default(), following, &context).await.unwrap();
    let ask = |watched: &Watched, count: u64| {
        let view = watched.view().unwrap();
        let class = view.steering.table().lookup("192.0.2.1".parse().unwrap()).class;
        let plan = view.steering.plan(&"x".parse().unwrap(), class, model::Family::V4).unwrap();
        let address = "192.0.2.1".parse().unwrap();
        let client = steer::Client { address, scope: 0, now: crate::clock::now() };
        let mut dice = model::Dice::seeded(1);
        (0..count).for_each(|_| assert_eq!(plan.choose(&mut dice, &client).len(), 1));
    };
    // The one node has no room from the minimum on, and is given all the same.
    ask(&watched, steer::guard::COUNTED_MIN + 5);
    maps.send_replace(Some(guarded(2)));
    watched.changed().await.unwrap();
    ask(&watched, 3);
    let line = r#"cacheboy_host_steering_guarded_total{how="overruled",project="x"} 8"#;
    while !context.metrics.render().contains(line) {
        tokio::task::yield_now().await;
    }
    let shown = &context.status.show()["steering"]["guards"]["x"];
    assert_eq!((&shown["nodes"]["n"], &shown["max_share"]["nodes"]), (&1.0.into(), &10.into()));
}

#[tokio::test]
async fn the_first_view_is_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let (maps, following) = watch::channel(Some(node_map(1)));
    let mut watched =
        start(LocationParams::default(), following, &context(dir.path())).await.unwrap();
    assert_eq!(watched.view().unwrap().number, 1);
    maps.send_replace(Some(node_map(2)));
    watched.changed().await.unwrap();
    assert_eq!(watched.view().unwrap().steering.map().generation, 2);
}

#[tokio::test]
async fn a_bad_database_at_start_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("country.mmdb");
    for bytes in [None, Some(b"not a database")] {
        bytes.into_iter().for_each(|bytes| std::fs::write(&path, bytes).unwrap());
        let (_maps, following) = watch::channel(None);
        let location = LocationParams { country: Some(path.clone()), ..LocationParams::default() };
        let Err(error) = start(location, following, &context(dir.path())).await else {
            panic!("it started")
        };
        assert!(matches!(error, SteeringError::Open(_)));
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("country.mmdb"), "{cause}");
    }
}
