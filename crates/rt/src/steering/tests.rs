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
    let location = LocationParams { country: Some(path.clone()), asn: None };
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
        let location = LocationParams { country: Some(path.clone()), asn: None };
        let Err(error) = start(location, following, &context(dir.path())).await else {
            panic!("it started")
        };
        assert!(matches!(error, SteeringError::Open(_)));
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("country.mmdb"), "{cause}");
    }
}
