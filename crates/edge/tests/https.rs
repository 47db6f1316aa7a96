//! Masters over https: a whole edge, with certificates of an authority of the test's own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nodemap::NodeMap;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use support::edge::{Edge, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const LENGTH: usize = 5 * BLOCK + 99;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// An authority and the file that says so.
fn authority(dir: &Path) -> (Authority, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let file = dir.join("ca.pem");
    std::fs::write(&file, issuer.pem()).unwrap();
    (issuer, file)
}

/// TLS with a certificate for `name` before a master.
async fn before(master: &Origin, authority: &Authority, name: &str) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, behind) = (listener.local_addr().unwrap(), master.address);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(stream).await.ok()?;
                let mut inside = TcpStream::connect(behind).await.ok()?;
                // Who is cut off says no word of TLS about it.
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await.ok()
            });
        }
    });
    address
}

/// The map of masters at these addresses that are asked for by a name.
fn over_tls(addresses: &[SocketAddr], host: &str) -> NodeMap {
    let mut map = node_map(1, addresses);
    for master in map.map.projects.values_mut().flat_map(|p| p.masters.values_mut()) {
        master.url = format!("{}/tree", master.url.replace("http:", "https:"));
        master.host = Some(host.to_owned());
    }
    map
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_over_https_is_filled_from_and_resumed_like_any_other() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (issuer, ca) = authority(dir.path());
    let body = content(1, LENGTH);
    let item = Item::new(body.clone(), "a1");
    let at = u64::try_from(2 * BLOCK + 5).unwrap();
    master.put("/tree/a", Item { breaks: [at].into(), ..item.clone() });
    master.put("/tree/b", item);
    let address = before(&master, &issuer, "download.example").await;
    let map = over_tls(&[address], "download.example");
    let edge = Edge::trusting(dir.path(), map, &ca).await;

    let reply = edge.get("/a", &[]).await;
    assert_eq!((reply.status, reply.header("etag")), (200, "\"a1\""));
    assert_same(&reply.body, &body);
    let asked = master.asked();
    assert_eq!(asked[0].headers["host"], "download.example");
    // The connection broke, and what was missing came over another.
    assert_eq!(asked[1].range(), Some(format!("bytes={at}-{}", LENGTH - 1).as_str()));
    assert_eq!(master.sent(), u64::try_from(LENGTH).unwrap());
    assert_same(&edge.get("/a", &[]).await.body, &body);
    assert_eq!(master.asked().len(), asked.len(), "a hit");
    let tail = edge.range("/b", LENGTH - 7, LENGTH - 1).await;
    assert_eq!(tail.status, 206);
    assert_same(&tail.body, &body[LENGTH - 7..]);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_whose_certificate_is_wrong_is_asked_for_nothing() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (issuer, ca) = authority(dir.path());
    let body = content(2, LENGTH);
    master.put("/tree/a", Item::new(body.clone(), "a1"));
    let wrong = before(&master, &issuer, "other.example").await;
    let right = before(&master, &issuer, "download.example").await;
    let edge = Edge::trusting(dir.path(), over_tls(&[wrong], "download.example"), &ca).await;
    let reply = edge.get("/a", &[]).await;
    assert_eq!(reply.status, 502);
    let said = reply.header("proxy-status");
    assert!(said.contains("error=tls_certificate_error") && said.contains("tls-certificate"));
    assert!(master.asked().is_empty());
    let mut both = over_tls(&[wrong, right], "download.example");
    both.generation = 2;
    edge.map.send_replace(Some(Arc::new(both)));
    while edge.status()["edge"]["generation"] != 2 {
        tokio::task::yield_now().await;
    }
    assert_same(&edge.get("/a", &[]).await.body, &body);
    let masters = &edge.status()["edge"]["masters"]["videolan"];
    assert_eq!((&masters[0]["skipped"], &masters[1]["skipped"]), (&true.into(), &false.into()));
    edge.stop().await;
}
