//! Node maps that are signed.

use nodemap::signature::{SecretKey, Signature, SignatureFile, TrustedKeys};
use rt::follow;

use super::fake::{Mood, Node};
use super::{Home, maps_of};
use crate::{Error, Health};

#[tokio::test]
async fn with_a_key_each_map_goes_out_with_the_signature_of_its_bytes() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(&[("a", "192.0.2.1")])).with("192.0.2.1", &node);
    let path = home.dir.path().join("key");
    let key = SecretKey::new([7; 32], [7; 8]).unwrap();
    std::fs::write(&path, key.to_file()).unwrap();
    let mut params = home.params();
    params.key = Some(path.clone());
    let running = home.start_with(params.clone()).await;
    running.node_is("a", model::State::Up).await;

    let trusted = TrustedKeys(vec![key.public_key()]);
    let map = running.get("/node-map", &[]).await;
    let line = map.headers[&follow::SIGNATURE].to_str().unwrap();
    let signature: Signature = line.parse().unwrap();
    assert_eq!(trusted.verify(&map.body, Some(&signature)), Ok(()));
    let file = running.get("/node-map.minisig", &[]).await.body;
    let file: SignatureFile = std::str::from_utf8(&file).unwrap().parse().unwrap();
    let map = running.get("/node-map", &[]).await;
    assert_eq!(trusted.verify_file(&map.body, &file), Ok(()));
    running.stop().await;

    std::fs::write(&path, key.public_key().to_file()).unwrap();
    let refused = Health::bind(params.clone(), home.context()).await.unwrap_err();
    assert!(matches!(refused, Error::Key(..)), "{refused}");
    params.key = Some(home.dir.path().join("none"));
    let refused = Health::bind(params, home.context()).await.unwrap_err();
    assert!(matches!(refused, Error::KeyFile(..)), "{refused}");
}

#[tokio::test]
async fn without_a_key_there_is_no_signature() {
    let home = Home::new(&maps_of(&[("a", "192.0.2.1")]));
    let running = home.start().await;
    assert!(!running.get("/node-map", &[]).await.headers.contains_key(&follow::SIGNATURE));
    assert_eq!(running.get("/node-map.minisig", &[]).await.status, 404);
    running.stop().await;
}
