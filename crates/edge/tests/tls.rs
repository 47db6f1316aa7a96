//! Clients over https: a whole edge, before and after its certificates change and it restarts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rt::tls::CertificateFiles;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const LENGTH: usize = 9 * BLOCK + 99;

/// A new certificate for the host of the project, in the files of the edge.
fn renew(dir: &Path) -> (CertificateFiles, CertificateDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let files = CertificateFiles { chain: dir.join("edge.pem"), key: dir.join("edge.key") };
    std::fs::write(&files.chain, certificate.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    (files, certificate.der().clone())
}

fn client(trusted: &[&CertificateDer<'static>]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    trusted.iter().for_each(|der| roots.add((*der).clone()).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

async fn connect(edge: &Edge, client: &Arc<ClientConfig>) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(edge.address).await.unwrap();
    let name = ServerName::try_from(HOST).unwrap();
    TlsConnector::from(Arc::clone(client)).connect(name, stream).await.unwrap()
}

fn shown(stream: &TlsStream<TcpStream>) -> &CertificateDer<'static> {
    &stream.get_ref().1.peer_certificates().unwrap()[0]
}

async fn ask(stream: &mut TlsStream<TcpStream>, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// The head of a response.
async fn head(stream: &mut TlsStream<TcpStream>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn read(stream: &mut TlsStream<TcpStream>, length: usize) -> Vec<u8> {
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_under_a_transfer_and_sessions_outlive_the_process() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let map = node_map(1, &[master.address]);
    let (files, old) = renew(dir.path());
    let edge = Edge::over_tls(dir.path(), map.clone(), std::slice::from_ref(&files)).await;

    let mut before = connect(&edge, &client(&[&old])).await;
    let shown_listeners = &edge.status()["edge"]["listeners"];
    let listener = serde_json::json!([{ "address": edge.address, "tls": true, "http3": false }]);
    assert_eq!(shown_listeners, &listener);
    ask(&mut before, "/a").await;
    assert!(head(&mut before).await.starts_with("HTTP/1.1 200 OK\r\n"));
    let mut got = read(&mut before, BLOCK).await;

    let (_, new) = renew(dir.path());
    edge.certificates().reload().unwrap();
    got.extend(read(&mut before, LENGTH - BLOCK).await);
    assert_same(&got, &body);
    assert!(*shown(&before) == old);

    let config = client(&[&new]);
    let mut after = connect(&edge, &config).await;
    assert!(*shown(&after) == new);
    assert_eq!(after.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
    for stream in [&mut before, &mut after] {
        ask(stream, "/a").await;
        head(stream).await;
        assert_same(&read(stream, LENGTH).await, &body);
    }
    assert_eq!(master.sent(), u64::try_from(LENGTH).unwrap(), "hits");
    drop((before, after));
    edge.stop().await;

    // Another process with the same files.
    let edge = Edge::over_tls(dir.path(), map, &[files]).await;
    let mut back = connect(&edge, &config).await;
    assert_eq!(back.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
    ask(&mut back, "/a").await;
    head(&mut back).await;
    assert_same(&read(&mut back, LENGTH).await, &body);
    drop(back);
    edge.stop().await;
}
