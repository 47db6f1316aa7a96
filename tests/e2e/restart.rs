//! Restarting without anybody noticing: hand-overs under load, hand-overs that fail, and leaving.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use locate::Evidence;
use locate::mmdb_write::Writer;
use support::{cacheboy, output, until};

const CONFIG: &str = r#"
[host]
name = "one"
state_dir = "state"

[admin]
listen = "unix:admin.sock"

[follow]
node_map = ["http://NET:7083/node-map"]

[location]
country = "country.mmdb"

[master]
listen = ["NET:7082"]
tree = "tree"

[health]
listen = ["NET:7083"]
maps = "maps"

[health.probe]
port = 7080

[edge]
listen = ["NET:7080"]
drain_notice_s = NOTICE
drain_deadline_s = 600

[[edge.store]]
path = "cache"
size = "200 MiB"

[dns]
listen = ["NET:7053"]
udp_threads = 2
"#;

const MAP: &str = r#"
[site.here]

[node.one]
site = "here"
addresses = ["NET"]

[pool]
all = { one = 1 }

[map.default]
default = ["all"]

[zone."cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }

[zone."cdn.example".host]
"ns1.cdn.example" = ["NET"]

[project.files]
name = "files.cdn.example"
hosts = ["*"]
map = "default"

[project.files.master.here]
url = "http://NET:7082"
"#;

const SMALL: &str = "small and to the point\n";
/// More than the buffers of a connection hold.
const LARGE_BYTES: u32 = 48 << 20;

/// A host with every role, and all successors of its process.
struct Host {
    dir: tempfile::TempDir,
    net: &'static str,
    first: Child,
}

impl Host {
    fn start(net: &'static str, notice_s: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("tree")).unwrap();
        fs::create_dir_all(at("maps")).unwrap();
        fs::write(at("maps/all.toml"), MAP.replace("NET", net)).unwrap();
        let config = CONFIG.replace("NET", net).replace("NOTICE", &notice_s.to_string());
        fs::write(at("host.toml"), config).unwrap();
        let mut database = Writer::new("Test", "everybody is in Germany", 0);
        let country = "DE".parse().ok();
        let evidence = Evidence { asn: None, country, continent: None };
        database.insert("0.0.0.0/0".parse().unwrap(), &locate::testing::record(evidence, None));
        fs::write(at("country.mmdb"), database.finish()).unwrap();
        fs::write(at("tree/.cacheboy-tree"), "").unwrap();
        fs::write(at("tree/small"), SMALL).unwrap();
        fs::write(at("tree/large"), large()).unwrap();
        let log = fs::File::create(at("log")).unwrap();
        let mut command = cacheboy();
        // A group of its own, so that all successors can be ended with it.
        command.args(["run", "--config"]).arg(at("host.toml")).process_group(0);
        let first = command.stderr(log).stdout(Stdio::null()).spawn().unwrap();
        let host = Self { dir, net, first };
        until("the edge serves", || host.get("/small").is_ok_and(|body| body == SMALL.as_bytes()));
        until("dns answers", || query(net).is_ok());
        host
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap()
    }

    /// The process in `/status`; null where nobody answers.
    fn process(&self) -> serde_json::Value {
        let mut ask = Command::new("curl");
        ask.args(["-sS", "--max-time", "5", "--unix-socket"]).arg(self.path().join("admin.sock"));
        let answer = output(ask.arg("http://admin/status")).out;
        let mut all: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        all["process"].take()
    }

    fn pid(&self) -> u64 {
        self.process()["pid"].as_u64().unwrap_or(0)
    }

    fn signal(&self, signal: &str, pid: u64) {
        let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap();
        assert!(sent.success(), "{signal} to {pid}: {}", self.log());
    }

    /// One hand-over, to its end.
    fn hand_over(&self) {
        let before = self.pid();
        self.signal("HUP", before);
        until("a successor serves", || ![0, before].contains(&self.pid()));
    }

    fn send(&self, path: &str) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect((self.net, 7080))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")?;
        Ok(stream)
    }

    /// The body of a 200.
    fn get(&self, path: &str) -> std::io::Result<Vec<u8>> {
        get(self.net, self.send(path)?)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let group = format!("-{}", self.first.id());
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).status();
        let _ = self.first.wait();
    }
}

fn get(net: &str, mut stream: TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    let refuse = |what: String| std::io::Error::other(format!("{net}: {what}"));
    let end = all.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or_else(|| refuse(format!("no head in {} bytes", all.len())))?;
    let body = all.split_off(end + 4);
    let head = String::from_utf8_lossy(&all);
    if head.starts_with("HTTP/1.1 200") { Ok(body) } else { Err(refuse(head.into_owned())) }
}

fn large() -> Vec<u8> {
    (0..LARGE_BYTES / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// A question for the address of the steered name.
fn question() -> Vec<u8> {
    let mut question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00".to_vec();
    for label in ["files", "cdn", "example"] {
        question.push(u8::try_from(label.len()).unwrap());
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    question
}

/// Whether `answer` is one to [`question`], with an address.
fn check(answer: &[u8]) -> std::io::Result<()> {
    let refused = || std::io::Error::other(format!("answer {:?}", &answer[..answer.len().min(12)]));
    let is_answer = answer[..2] == question()[..2] && answer[3] & 15 == 0 && answer[7] > 0;
    if is_answer { Ok(()) } else { Err(refused()) }
}

/// Asks once over UDP for the steered name; an error when nothing comes.
fn query(net: &str) -> std::io::Result<()> {
    let socket = UdpSocket::bind((net, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send_to(&question(), (net, 7053))?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    check(&answer[..length])
}

/// The same over a TCP connection of its own.
fn query_tcp(net: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((net, 7053))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let question = question();
    stream.write_all(&[&[0, u8::try_from(question.len()).unwrap()], &question[..]].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    check(&answer)
}

/// Repeats `ask` until told to stop; gives every failure.
fn repeat(
    stop: &Arc<AtomicBool>,
    done: &Arc<AtomicU64>,
    ask: impl Fn() -> std::io::Result<()> + Send + 'static,
) -> thread::JoinHandle<Vec<String>> {
    let (stop, done) = (Arc::clone(stop), Arc::clone(done));
    thread::spawn(move || {
        let mut failures = Vec::new();
        while !stop.load(Relaxed) {
            match ask() {
                Ok(()) => _ = done.fetch_add(1, Relaxed),
                Err(error) => failures.push(error.to_string()),
            }
        }
        failures
    })
}

#[test]
fn hand_overs_lose_no_request_no_query_and_no_download() {
    const NET: &str = "127.83.0.1";
    let host = Host::start(NET, 0);
    let mut slow = host.send("/large").unwrap();
    let mut begun = vec![0; 100_000];
    slow.read_exact(&mut begun).unwrap();

    let (stop, requests, queries) = (Arc::default(), Arc::default(), Arc::default());
    let small = || {
        let mut stream = TcpStream::connect((NET, 7080))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(stream, "GET /small HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")?;
        let body = get(NET, stream)?;
        assert_eq!(body, SMALL.as_bytes());
        Ok(())
    };
    let clients = [
        repeat(&stop, &requests, small),
        repeat(&stop, &requests, small),
        repeat(&stop, &queries, || query(NET)),
    ];
    for _ in 0..5 {
        let so_far = (requests.load(Relaxed), queries.load(Relaxed));
        host.hand_over();
        until("clients are served meanwhile", || {
            requests.load(Relaxed) > so_far.0 && queries.load(Relaxed) > so_far.1
        });
    }
    stop.store(true, Relaxed);
    for client in clients {
        assert_eq!(client.join().unwrap(), Vec::<String>::new(), "{}", host.log());
    }
    slow.read_to_end(&mut begun).unwrap();
    let body = begun.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(begun[body..] == large(), "{} of {LARGE_BYTES} bytes", begun.len() - body);
    drop(slow);
    until("every predecessor has ended, and is not shown any more", || {
        let process = host.process();
        process["version"] == env!("CARGO_PKG_VERSION") && process["predecessor"].is_null()
    });
}

#[test]
fn hand_overs_new_maps_and_new_databases_lose_no_query() {
    const NET: &str = "127.83.0.4";
    let host = Host::start(NET, 0);
    let (stop, over_udp, over_tcp, edits) =
        (Arc::default(), Arc::default(), Arc::default(), Arc::default());
    let maps = host.path().join("maps/all.toml");
    let database = host.path().join("country.mmdb");
    let demo = fs::read(&database).unwrap();
    let number = AtomicU64::new(0);
    let edit = move || {
        let n = number.fetch_add(1, Relaxed);
        // A pool beside the one that answers: every edit is a new node map with new lists.
        let map = MAP
            .replace("[pool]\n", &format!("[pool]\nnew{n} = {{ one = 1 }}\n"))
            .replace("[\"all\"]", &format!("[\"all\", \"new{n}\"]"));
        replace(&maps, map.replace("NET", NET).as_bytes())?;
        replace(&database, &demo)?;
        thread::sleep(Duration::from_millis(50));
        Ok(())
    };
    let clients = [
        repeat(&stop, &over_udp, || query(NET)),
        repeat(&stop, &over_udp, || query(NET)),
        repeat(&stop, &over_tcp, || query_tcp(NET)),
        repeat(&stop, &edits, edit),
    ];
    let all = [&over_udp, &over_tcp, &edits];
    for _ in 0..3 {
        let so_far = all.map(|done: &Arc<AtomicU64>| done.load(Relaxed));
        host.hand_over();
        until("queries are answered meanwhile", || {
            all.iter().zip(so_far).all(|(done, so_far)| done.load(Relaxed) > so_far + 5)
        });
        // Each process takes over maps and databases that come while it is there.
        let seen = host.log().len();
        until("new maps and databases are in use", || {
            let log = host.log();
            let news = &log[seen..];
            news.contains("location database read anew") && news.contains("by a new node map")
        });
    }
    stop.store(true, Relaxed);
    for client in clients {
        assert_eq!(client.join().unwrap(), Vec::<String>::new(), "{}", host.log());
    }
    assert!(!host.log().contains("maps refused"), "{}", host.log());
}

/// Writes `bytes` to `path` so that nobody sees a part.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)
}

#[test]
fn a_successor_that_cannot_changes_nothing() {
    let host = Host::start("127.83.0.2", 0);
    let config = host.path().join("host.toml");
    let sound = fs::read_to_string(&config).unwrap();
    let before = host.pid();
    fs::write(&config, sound.replace("[health]", "[heath]")).unwrap();
    host.signal("HUP", before);
    until("it is said", || host.log().contains("no successor serves"));
    let process = host.process();
    assert_eq!(
        (process["pid"].as_u64(), process["phase"].as_str()),
        (Some(before), Some("serving"))
    );
    assert_eq!(host.get("/small").unwrap(), SMALL.as_bytes());
    fs::write(&config, sound).unwrap();
    host.hand_over();
    assert_eq!(host.get("/small").unwrap(), SMALL.as_bytes());
}

#[test]
fn who_leaves_says_so_finishes_what_runs_and_is_cut_by_a_second_signal() {
    let mut host = Host::start("127.83.0.3", 2);
    let pid = host.pid();
    let mut running = host.send("/large").unwrap();
    let mut some = [0; 1000];
    running.read_exact(&mut some).unwrap();
    host.signal("TERM", pid);
    until("health says it", || {
        let health = host.get("/.well-known/cacheboy/health");
        health.is_err_and(|error| error.to_string().contains("503"))
    });
    assert_eq!(host.get("/small").unwrap(), SMALL.as_bytes(), "the notice is not over");
    until("nobody new is served", || TcpStream::connect((host.net, 7080)).is_err());
    let mut rest = Vec::new();
    let read = (&mut running).take(u64::from(LARGE_BYTES / 2)).read_to_end(&mut rest);
    assert_eq!(read.unwrap(), LARGE_BYTES as usize / 2);
    assert!(host.first.try_wait().unwrap().is_none(), "it finishes what runs");
    host.signal("TERM", pid);
    host.first.wait().unwrap();
    let cut = running.read_to_end(&mut rest);
    assert!(cut.is_err() || rest.len() < LARGE_BYTES as usize, "cut in the middle");
}
