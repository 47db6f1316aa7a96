//! How requests and connections end before their time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use h3::error::{Code, StreamError};
use quinn::VarInt;
use serve::{Limits, Piece};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::support::{Hello, Server, impatient, piece, request, rest, until, waiting};

#[tokio::test]
async fn draining_finishes_what_runs_and_closes_what_idles() {
    let (server, mut bodies) = waiting(Limits::default(), Some(6));
    let (mut busy, mut idle) = (server.connect().await, server.connect().await);
    let mut running = busy.ask(request("GET", "/")).await;
    let (body, _) = bodies.recv().await.unwrap();
    body.send(piece("one")).unwrap();
    running.recv_response().await.unwrap();
    let mut answered = idle.ask(request("GET", "/")).await;
    bodies.recv().await.unwrap().0.send(piece("onetwo")).unwrap();
    answered.recv_response().await.unwrap();
    assert_eq!(rest(&mut answered).await.unwrap(), b"onetwo");

    server.stop();
    let ended = idle.ended.await.unwrap();
    assert!(ended.is_h3_no_error(), "{ended:?}");
    // `busy` was told as well: it asks nothing more.
    let refused = loop {
        match busy.requests.send_request(request("GET", "/").body(()).unwrap()).await {
            Ok(mut late) => {
                let refused = late.recv_response().await.unwrap_err();
                let StreamError::RemoteTerminate { code, .. } = refused else { continue };
                assert_eq!(code, Code::H3_REQUEST_REJECTED);
            }
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, StreamError::RemoteClosing { .. }), "{refused:?}");
    assert!(bodies.try_recv().is_err(), "nothing new is answered");
    assert!(!server.task.is_finished());
    body.send(piece("two")).unwrap();
    drop(body);
    assert_eq!(rest(&mut running).await.unwrap(), b"onetwo");
    drop(running);
    server.task.await.unwrap();
    assert_eq!(server.counters.open.load(Relaxed), 0);
    assert_eq!(server.counters.cut.load(Relaxed), 0);
}

#[tokio::test]
async fn a_cut_ends_what_runs() {
    let (server, mut bodies) = waiting(Limits::default(), Some(6));
    let mut browser = server.connect().await;
    let mut stream = browser.ask(request("GET", "/")).await;
    let (body, dropped) = bodies.recv().await.unwrap();
    body.send(piece("one")).unwrap();
    stream.recv_response().await.unwrap();
    server.shutdown.cut();
    server.task.await.unwrap();
    assert!(dropped.await.is_err(), "the source is let go");
    rest(&mut stream).await.unwrap_err();
    assert_eq!(server.counters.cut.load(Relaxed), 1);
}

#[tokio::test]
async fn a_client_that_takes_its_request_back_takes_the_source_along() {
    let (server, mut bodies) = waiting(Limits::default(), Some(6));
    let mut browser = server.connect().await;
    let mut stream = browser.ask(request("GET", "/")).await;
    let (body, dropped) = bodies.recv().await.unwrap();
    stream.stop_sending(Code::H3_REQUEST_CANCELLED);
    assert!(dropped.await.is_err());
    drop(body);
    let mut next = browser.ask(request("GET", "/")).await;
    bodies.recv().await.unwrap().0.send(piece("onetwo")).unwrap();
    next.recv_response().await.unwrap();
    assert_eq!(rest(&mut next).await.unwrap(), b"onetwo");
}

#[tokio::test]
async fn a_client_that_only_takes_requests_back_is_sent_away() {
    let (server, mut bodies) = waiting(Limits::default(), Some(6));
    let mut browser = server.connect().await;
    tokio::spawn(async move { while bodies.recv().await.is_some() {} });
    let mut asked = 0;
    while browser.connection.close_reason().is_none() {
        let Ok(mut stream) =
            browser.requests.send_request(request("GET", "/").body(()).unwrap()).await
        else {
            break;
        };
        stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        asked += 1;
    }
    let closed = browser.connection.closed().await;
    let excess = VarInt::from_u64(Code::H3_EXCESSIVE_LOAD.value()).unwrap();
    let is_right = matches!(&closed, quinn::ConnectionError::ApplicationClosed(close) if close.error_code == excess);
    assert!(is_right, "{closed:?}");
    assert!(asked > 500, "{asked}");
    assert_eq!(server.counters.malformed.load(Relaxed), 1);
}

#[tokio::test]
async fn a_reader_that_has_stopped_is_cut_in_the_end() {
    let (server, mut bodies) = waiting(impatient(), None);
    // A stream that takes a few bytes of data beside the head of the response, and a client that
    // shows that it is there.
    let mut transport = quinn::TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(100))
        .keep_alive_interval(Some(Duration::from_millis(20)));
    let mut browser = server.connect_as(transport).await;
    let mut stream = browser.ask(request("GET", "/")).await;
    let (body, dropped) = bodies.recv().await.unwrap();
    body.send(Ok(Piece::Bytes(vec![0; 1_000_000].into()))).unwrap();
    assert!(dropped.await.is_err());
    until(|| server.counters.stalled.load(Relaxed) == 1).await;
    let cut = async {
        stream.recv_response().await?;
        rest(&mut stream).await
    };
    let cut = cut.await.unwrap_err();
    let is_right =
        matches!(cut, StreamError::RemoteTerminate { code: Code::H3_REQUEST_CANCELLED, .. });
    assert!(is_right, "{cut:?}");
    assert_eq!(server.counters.broken_off.load(Relaxed), 0);
    assert!(browser.connection.close_reason().is_none());
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let (server, _bodies) = waiting(impatient(), Some(6));
    let mut transport = quinn::TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_millis(20)));
    let browser = server.connect_as(transport).await;
    let (mut send, mut receive) = browser.connection.open_bi().await.unwrap();
    // The beginning of a HEADERS frame.
    send.write_all(&[1, 40, 0, 0]).await.unwrap();
    let refused = receive.read(&mut [0; 1]).await.unwrap_err();
    let rejected = VarInt::from_u64(Code::H3_REQUEST_REJECTED.value()).unwrap();
    assert_eq!(refused, quinn::ReadError::Reset(rejected));
    assert_eq!(server.counters.timeouts.load(Relaxed), 1);
    // And then it asks nothing at all, though it shows that it is there.
    let ended = browser.ended.await.unwrap();
    assert!(ended.is_h3_no_error(), "{ended:?}");
}

/// With many handshakes open, a client is sent back to prove its address; then it is served.
#[tokio::test]
async fn addresses_are_proved_while_many_handshakes_are_open() {
    let (server, mut bodies) = waiting(Limits::default(), Some(6));
    // First packets of clients that answer nothing: what they send to this socket is passed on.
    let nobody = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut silent = Vec::new();
    for count in 0..64 {
        let config = server.client_config(quinn::TransportConfig::default());
        let connecting =
            endpoint.connect_with(config, nobody.local_addr().unwrap(), "a.example").unwrap();
        let mut datagram = [0; 2048];
        let (len, _) = nobody.recv_from(&mut datagram).await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&datagram[..len], server.address).await.unwrap();
        until(|| server.counters.open.load(Relaxed) == count + 1).await;
        silent.push((connecting, socket));
    }
    assert_eq!(server.counters.h3_retries.load(Relaxed), 0);
    let mut browser = server.connect().await;
    assert_eq!(server.counters.h3_retries.load(Relaxed), 1);
    let mut stream = browser.ask(request("GET", "/")).await;
    bodies.recv().await.unwrap().0.send(piece("onetwo")).unwrap();
    stream.recv_response().await.unwrap();
    assert_eq!(rest(&mut stream).await.unwrap(), b"onetwo");
}

/// The client of a process that is gone is told so by the next one on that address.
#[tokio::test]
async fn who_asks_a_process_that_is_gone_is_told_so() {
    let first = Server::start(Hello, Limits::default());
    let second = Server::start_in(Arc::clone(&first.dir), Hello, Limits::default());
    // The address: first it leads to one server, then to the other.
    let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = front.local_addr().unwrap();
    let (lead, mut leads) = watch::channel(first.address);
    tokio::spawn(async move {
        let (mut datagram, mut client) = ([0; 2048], address);
        loop {
            let (len, from) = front.recv_from(&mut datagram).await.unwrap();
            let is_server = from == first.address || from == second.address;
            let to = if is_server { client } else { *leads.borrow_and_update() };
            client = if is_server { client } else { from };
            front.send_to(&datagram[..len], to).await.unwrap();
        }
    });
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = first.client_config(quinn::TransportConfig::default());
    let connection = endpoint.connect_with(config, address, "a.example").unwrap().await.unwrap();
    // The handshake is confirmed once the server has opened its streams.
    connection.accept_uni().await.unwrap();
    lead.send_replace(second.address);
    connection.open_uni().await.unwrap().write_all(&[0x21; 1000]).await.unwrap();
    assert_eq!(connection.closed().await, quinn::ConnectionError::Reset);
}

/// A successor has the same socket, so that nothing of a connection would come here any more.
#[tokio::test]
async fn a_hand_over_closes_connections_so_that_clients_come_again() {
    let (server, mut bodies) = waiting(Limits::default(), Some(6));
    let mut browser = server.connect().await;
    let mut stream = browser.ask(request("GET", "/")).await;
    let (_body, dropped) = bodies.recv().await.unwrap();
    server.shutdown.give_up();
    stream.recv_response().await.unwrap();
    assert!(browser.connection.close_reason().is_none(), "until the successor serves");
    server.stop();
    let ended = browser.ended.await.unwrap();
    assert!(ended.is_h3_no_error(), "{ended:?}");
    rest(&mut stream).await.unwrap_err();
    assert!(dropped.await.is_err());
    server.task.await.unwrap();
    assert_eq!(server.counters.open.load(Relaxed), 0);
}
