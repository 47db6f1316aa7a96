//! Load over HTTP/3, for measurements: asks one server for one path again and again.
//!
//! ```text
//! cargo run --release -p serve --example h3_load -- ADDRESS:PORT HOST PATH REQUESTS STREAMS
//! ```
//!
//! One connection, STREAMS requests at once. Prints bytes, seconds, GB/s, requests/s, and what quinn
//! saw of the path. The certificate is not looked at: it is for servers on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use http::Request;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

type Failure = Box<dyn Error + Send + Sync>;

/// Takes any certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn config() -> quinn::ClientConfig {
    let mut tls = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = QuicClientConfig::try_from(tls).expect("TLS 1.3");
    let mut transport = TransportConfig::default();
    // Windows that a machine's own loopback does not fill.
    transport.stream_receive_window(VarInt::from_u32(16 << 20));
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    config
}

async fn ask(
    mut requests: SendRequest<OpenStreams, Bytes>,
    uri: String,
    left: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
) -> Result<(), Failure> {
    while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
        let mut stream = requests.send_request(Request::get(&uri).body(())?).await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        if !response.status().is_success() {
            return Err(format!("status {}", response.status()).into());
        }
        while let Some(data) = stream.recv_data().await? {
            received.fetch_add(data.remaining() as u64, Relaxed);
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, host, path, requests, streams] = arguments.as_slice() else {
        return Err("usage: h3_load ADDRESS:PORT HOST PATH REQUESTS STREAMS".into());
    };
    let address: SocketAddr = address.parse()?;
    let (count, streams): (u64, usize) = (requests.parse()?, streams.parse()?);
    let endpoint = quinn::Endpoint::client(SocketAddr::new(
        if address.is_ipv6() { "::".parse()? } else { "0.0.0.0".parse()? },
        0,
    ))?;
    let connection = endpoint.connect_with(config(), address, host)?.await?;
    let (mut driver, requests) =
        h3::client::new(h3_quinn::Connection::new(connection.clone())).await?;
    tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    let (left, received) = (Arc::new(AtomicU64::new(count)), Arc::new(AtomicU64::new(0)));
    let uri = format!("https://{host}{path}");
    let began = rt::clock::now();
    let asking: Vec<_> = (0..streams)
        .map(|_| (requests.clone(), uri.clone(), Arc::clone(&left), Arc::clone(&received)))
        .map(|(requests, uri, left, received)| tokio::spawn(ask(requests, uri, left, received)))
        .collect();
    for asked in asking {
        asked.await??;
    }
    let seconds = rt::clock::now().mono_ns.saturating_sub(began.mono_ns) as f64 / 1e9;
    let (bytes, stats) = (received.load(Relaxed), connection.stats());
    println!(
        "{bytes} bytes, {seconds:.3} s, {:.3} GB/s, {:.0} requests/s",
        bytes as f64 / seconds / 1e9,
        count as f64 / seconds
    );
    println!(
        "received {} datagrams; mtu {}, rtt {:?}, sent {}, lost {}",
        stats.udp_rx.datagrams,
        stats.path.current_mtu,
        stats.path.rtt,
        stats.path.sent_packets,
        stats.path.lost_packets
    );
    Ok(())
}
