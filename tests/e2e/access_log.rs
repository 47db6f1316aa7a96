//! The access log of a real process: what it has after `kill -9`, and when it is rotated under load.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use support::network::Network;
use support::{output, until};

const CLIENTS: usize = 4;

/// Asks for `/hello` under a name of its own; when the whole answer was there.
#[allow(clippy::disallowed_methods, reason = "a real clock beside real processes")]
fn ask(edge: SocketAddr, name: &str) -> io::Result<Instant> {
    let mut stream = TcpStream::connect(edge)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(
        stream,
        "GET /hello HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {name}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhello\n") {
        Ok(Instant::now())
    } else {
        Err(io::Error::other(answer))
    }
}

/// Clients that ask until they are told to stop, or are not answered; the names of what was answered,
/// and when.
struct Load {
    stop: AtomicBool,
    answered: AtomicU64,
}

impl Load {
    fn new() -> Self {
        Self { stop: AtomicBool::new(false), answered: AtomicU64::new(0) }
    }

    fn client(&self, edge: SocketAddr, number: usize) -> HashMap<String, Instant> {
        let mut all = HashMap::new();
        while !self.stop.load(Relaxed) {
            let name = format!("client-{number}-{}", all.len());
            let Ok(ended) = ask(edge, &name) else { break };
            all.insert(name, ended);
            self.answered.fetch_add(1, Relaxed);
        }
        all
    }

    /// Lets clients ask while `meanwhile` goes on.
    fn during<T>(
        edge: SocketAddr,
        meanwhile: impl FnOnce(&Self) -> T,
    ) -> (HashMap<String, Instant>, T) {
        let load = Self::new();
        thread::scope(|scope| {
            let client = |number| {
                let load = &load;
                scope.spawn(move || load.client(edge, number))
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            let done = meanwhile(&load);
            load.stop.store(true, Relaxed);
            (clients.into_iter().flat_map(|client| client.join().unwrap()).collect(), done)
        })
    }

    fn wait_answered(&self, count: u64) {
        until("clients are answered", || self.answered.load(Relaxed) >= count);
    }
}

/// How many lines each client's request has, in these files. Every line is a whole one.
fn lines(files: &[&Path]) -> HashMap<String, u64> {
    let mut found = HashMap::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{}", file.display());
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if let Some(name) = line["user_agent"].as_str().filter(|n| n.starts_with("client-")) {
                assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &6.into()), "{line}");
                *found.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    found
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a real clock beside real processes")]
fn kill_9_costs_lines_of_the_last_moment_at_most() {
    let mut network = Network::start("127.80.11", "");
    let edge = network.edge(0);
    let (answered, killed) = Load::during(edge, |load| {
        let began = Instant::now();
        until("there is what must be in the log", || began.elapsed() > Duration::from_secs(3));
        load.wait_answered(100);
        let killed = Instant::now();
        network.restart(0, "KILL");
        killed
    });
    let found = lines(&[&network.dir().join("access.log")]);
    let second = Duration::from_secs(1);
    let old = answered.iter().filter(|(_, ended)| **ended + second < killed);
    let lost: Vec<_> = old.clone().filter(|(name, _)| found.get(*name) != Some(&1)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(old.count() > 0);
    // And the next process goes on in the same file.
    ask(edge, "client-next").unwrap();
    until("it has its line", || {
        lines(&[&network.dir().join("access.log")]).contains_key("client-next")
    });
}

#[test]
fn rotation_by_name_and_by_signal_loses_no_line() {
    let network = Network::start("127.80.12", "");
    let at = |name: &str| network.dir().join(name);
    let (path, first, second) = (at("access.log"), at("access.log.1"), at("access.log.2"));
    let pid = network.status("one")["process"]["pid"].to_string();
    let (answered, ()) = Load::during(network.edge(0), |load| {
        load.wait_answered(100);
        fs::rename(&path, &first).unwrap();
        until("the log is begun anew without being asked", || path.exists());
        let so_far = load.answered.load(Relaxed);
        load.wait_answered(so_far + 100);
        fs::rename(&path, &second).unwrap();
        assert_eq!(output(Command::new("kill").args(["-s", "USR1", &pid])).code, 0);
        until("the log is begun anew when asked", || path.exists());
        let so_far = load.answered.load(Relaxed);
        load.wait_answered(so_far + 100);
    });
    let files = [&*first, &*second, &*path];
    until("every line is written", || lines(&files).len() >= answered.len());
    let found = lines(&files);
    let wrong: Vec<_> = answered.keys().filter(|name| found.get(*name) != Some(&1)).collect();
    assert!(wrong.is_empty() && found.len() == answered.len(), "{wrong:?}");
    for file in files {
        assert!(lines(&[file]).len() > 50, "{}", file.display());
    }
    let lost = network.metric("one", "cacheboy_edge_log_lost_lines_total");
    assert_eq!(lost, 0);
}

#[test]
fn what_the_master_sends_the_edge_has_received() {
    let network = Network::start("127.80.13", "");
    let counts = || {
        ["cacheboy_master_sent_bytes_total", "cacheboy_edge_upstream_bytes_total"]
            .map(|name| network.metric("one", name))
    };
    let before = counts();
    let mut bytes = 0;
    for number in 0..20u8 {
        let length = 1 + usize::from(number) * 70_001;
        fs::write(network.tree().join(format!("file-{number}")), vec![number; length]).unwrap();
        let url = format!("http://{}/file-{number}", network.edge(0));
        let got = Command::new("curl").args(["-sSf", &url]).output().unwrap();
        assert!(got.status.success() && got.stdout == vec![number; length], "{url}");
        bytes += length as u64;
    }
    let after = counts();
    assert_eq!([after[0] - before[0], after[1] - before[1]], [bytes, bytes]);
}
