//! Against publishers that answer as they are told.

use super::*;
use nodemap::signature::SecretKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

fn document(generation: u64) -> Vec<u8> {
    nodemap::testing::node_map(generation).to_json()
}

fn params(node_map: Vec<Source>) -> FollowParams {
    FollowParams { node_map, keys: TrustedKeys::default() }
}

fn key(number: u8) -> SecretKey {
    SecretKey::new([number; 32], [number; 8]).unwrap()
}

fn context(state_dir: &Path) -> Context {
    Context::new("dns1".parse().unwrap(), state_dir.to_owned())
}

/// A publisher that answers each poll with the next reply it is given; gives the heads it saw.
async fn publisher() -> (Uri, mpsc::Sender<Vec<u8>>, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/node-map", listener.local_addr().unwrap()).parse().unwrap();
    let (replies, mut next) = mpsc::channel::<Vec<u8>>(8);
    let (saw, heads) = mpsc::channel(8);
    tokio::spawn(async move {
        while let Some(reply) = next.recv().await {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            saw.send(String::from_utf8(head).unwrap()).await.unwrap();
            stream.write_all(&reply).await.unwrap();
        }
    });
    (url, replies, heads)
}

fn ok(body: &[u8]) -> Vec<u8> {
    let mut reply =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    reply.extend_from_slice(body);
    reply
}

async fn generation(following: &mut Following, wanted: u64) {
    let is = |map: &Option<Arc<NodeMap>>| map.as_ref().is_some_and(|m| m.generation == wanted);
    following.wait_for(is).await.unwrap();
}

#[tokio::test]
async fn follows_newer_maps_refuses_others_and_starts_from_the_last_good() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    let (url, replies, mut heads) = publisher().await;
    let params = params(vec![Source::Http(url)]);
    let mut following = start(params.clone(), &context);
    assert!(following.borrow().is_none());

    replies.send(ok(&document(5))).await.unwrap();
    generation(&mut following, 5).await;
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with("GET /node-map?wait=30 "), "{head}");
    assert!(head.contains("cacheboy-reader: dns1\r\n"), "{head}");
    assert!(head.contains("cacheboy-generation: 0\r\n"), "{head}");

    let ahead = clock::now().wall_ms + AHEAD_MS_MAX + 60_000;
    for refused in [ok(&document(4)), ok(b"{}"), ok(&document(ahead)), ok(&document(6))] {
        replies.send(refused).await.unwrap();
    }
    generation(&mut following, 6).await;
    let errors = |reason| context.metrics.counter(&host::NODE_MAP_ERRORS, &[reason]).get();
    assert_eq!((errors("older"), errors("invalid"), errors("ahead")), (1, 1, 1));
    context.shutdown.end_soon();

    let again = start(params, &self::context(dir.path()));
    assert_eq!(again.borrow().as_ref().unwrap().generation, 6);
}

#[test]
fn a_source_that_does_not_hold_polls_is_asked_once_a_second() {
    let http = Source::Http("http://a.example".parse().unwrap());
    let ms = Duration::from_millis;
    assert_eq!(pause(&http, ms(3)), ms(997));
    assert_eq!(pause(&http, ms(30_000)), ms(0), "it held the poll");
    assert_eq!(pause(&Source::File("map.json".into()), ms(1)), ms(19));
}

#[test]
fn a_file_is_read_again_only_when_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("map.json");
    file::write_atomic(&path, &document(1)).unwrap();
    let mut follower = Follower {
        name: "dns1".parse().unwrap(),
        metrics: Metrics::new(),
        last_good: LastGood::new(dir.path().join("last.json"), &context(dir.path())),
        keys: TrustedKeys::default(),
        sender: watch::Sender::new(None),
        error_shown: String::new(),
        file_read: None,
    };
    assert!(follower.poll_file(&path).unwrap());
    file::write_atomic(&path, b"{}").unwrap();
    assert!(follower.poll_file(&path).is_err());
    assert!(follower.poll_file(&path).is_err(), "not taken, so looked at again");
    file::write_atomic(&path, &document(1)).unwrap();
    assert!(!follower.poll_file(&path).unwrap(), "replaced by the same");
    file::write_atomic(&path, &document(2)).unwrap();
    assert!(follower.poll_file(&path).unwrap(), "replaced");
}

#[test]
fn a_last_good_map_from_the_future_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let ahead = clock::now().wall_ms + 2 * AHEAD_MS_MAX;
    file::write_atomic(&last_good_path(dir.path()), &document(ahead)).unwrap();
    let load = || verified_last_good(dir.path(), &TrustedKeys::default());
    assert!(load().is_none());
    file::write_atomic(&last_good_path(dir.path()), &document(7)).unwrap();
    assert_eq!(load().unwrap().generation, 7);
}

#[tokio::test]
async fn follows_a_file_that_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("map.json");
    file::write_atomic(&path, &document(1)).unwrap();
    let context = context(dir.path());
    let mut following = start(params(vec![Source::File(path.clone())]), &context);
    generation(&mut following, 1).await;
    file::write_atomic(&path, &document(2)).unwrap();
    generation(&mut following, 2).await;
    context.shutdown.end_soon();
}

fn signed(by: &SecretKey, document: &[u8], body: &[u8]) -> Vec<u8> {
    let signature = by.sign(document, "").signature;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\ncacheboy-signature: {signature}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn of_trusted_keys_one_must_have_signed_also_what_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    let (url, replies, _heads) = publisher().await;
    let keys = TrustedKeys(vec![key(1).public_key(), key(2).public_key()]);
    let params = FollowParams { node_map: vec![Source::Http(url)], keys };
    let mut following = start(params.clone(), &context);
    let (five, six) = (document(5), document(6));
    let refused = [ok(&five), signed(&key(3), &five, &five), signed(&key(1), &six, &five)];
    for reply in refused {
        replies.send(reply).await.unwrap();
    }
    replies.send(signed(&key(1), &five, &five)).await.unwrap();
    generation(&mut following, 5).await;
    let errors = context.metrics.counter(&host::NODE_MAP_ERRORS, &["signature"]);
    assert_eq!(errors.get(), 3);
    replies.send(signed(&key(2), &six, &six)).await.unwrap();
    generation(&mut following, 6).await;
    context.shutdown.end_soon();

    let load = || verified_last_good(dir.path(), &params.keys).map(|map| map.generation);
    assert_eq!(load(), Some(6));
    // Stopped between the writes of the two files: the map before has its signature.
    file::write_atomic(&last_good_path(dir.path()), &five).unwrap();
    assert_eq!(load(), Some(5));
    file::write_atomic(&last_good_path(dir.path()), &document(7)).unwrap();
    assert_eq!(load(), None);
}

#[test]
fn a_file_has_its_signature_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("map.json");
    let mut follower = Follower {
        name: "dns1".parse().unwrap(),
        metrics: Metrics::new(),
        last_good: LastGood::new(dir.path().join("last.json"), &context(dir.path())),
        keys: TrustedKeys(vec![key(1).public_key()]),
        sender: watch::Sender::new(None),
        error_shown: String::new(),
        file_read: None,
    };
    file::write_atomic(&path, &document(1)).unwrap();
    assert!(matches!(follower.poll_file(&path), Err(PollError::Signature(_))));
    let signature = key(1).sign(&document(1), "generation:1").to_string();
    file::write_atomic(&dir.path().join("map.json.minisig"), signature.as_bytes()).unwrap();
    assert!(follower.poll_file(&path).unwrap());
}
