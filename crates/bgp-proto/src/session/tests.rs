//! Plays `tests/conversations/bgp/*.txt`: what the peer does in, what we do out, on a virtual clock.
//! The words of the scripts are explained in the README beside them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use model::Dice;

use super::*;
use crate::rib::{PeerId, Rib, ViewId};
use crate::testing::{announcement, change_table, open, operations, params};

/// After a change that is meant run with `CACHEBOY_GOLDEN=write`, and read the difference.
#[test]
fn every_conversation_goes_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conversations/bgp");
    let write = std::env::var("CACHEBOY_GOLDEN").is_ok_and(|v| v == "write");
    let mut played = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "txt") {
            continue;
        }
        let script = fs::read_to_string(&path).unwrap();
        let actual = Player::new().play(&script);
        if write {
            fs::write(&path, &actual).unwrap();
        }
        assert!(write || actual == script, "{} went differently:\n{actual}", path.display());
        played += 1;
    }
    assert!(played >= 8, "only {played} conversations found");
}

struct Player {
    params: Params,
    session: Session,
    rib: Rib,
    view: ViewId,
    peer: PeerId,
    now: Now,
    /// Bytes that were not used, of the connection that had some last.
    rest: Vec<u8>,
    out: String,
}

impl Player {
    fn new() -> Self {
        let mut rib = Rib::new([1, 2]);
        let view = rib.add_view("v").unwrap();
        let peer = rib.add_peer(view, false).unwrap();
        let (params, now) = (params(), Now::default());
        let session = Session::new(params.clone());
        Self { params, session, rib, view, peer, now, rest: Vec::new(), out: String::new() }
    }

    /// The script with what really happened.
    fn play(mut self, script: &str) -> String {
        for line in script.lines().filter(|line| !line.starts_with('<')) {
            self.out.push_str(line);
            self.out.push('\n');
            let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().collect();
            if let [verb, rest @ ..] = words.as_slice() {
                self.step(verb, rest);
                self.act();
            }
        }
        self.out
    }

    fn step(&mut self, verb: &str, rest: &[&str]) {
        match (verb, rest) {
            ("params", words) => {
                for word in words {
                    match word.split_once('=').unwrap_or((word, "")) {
                        ("passive", _) => self.params.passive = true,
                        ("hold", s) => self.params.hold_s = s.parse().unwrap(),
                        ("internal", _) => self.params.peer_as = self.params.local_as,
                        _ => panic!("unknown parameter {word}"),
                    }
                }
                self.session = Session::new(self.params.clone());
            }
            ("start", []) => self.session.start(self.now),
            ("stop", []) => self.session.stop(self.now, Code::Shutdown),
            ("refresh", []) => assert!(self.session.refresh()),
            ("at", [s]) => self.advance(s.parse().unwrap()),
            ("connected", [conn, way]) => {
                let way = if *way == "out" { Way::Out } else { Way::In };
                self.session.handle_connected(self.now, conn_of(conn), way);
            }
            ("failed", []) => self.session.handle_connect_failed(self.now),
            ("closed", [conn]) => self.session.handle_closed(self.now, conn_of(conn)),
            ("open", [conn, words @ ..]) => self.bring(conn, &open(&self.params, words)),
            ("keepalive", [conn]) => self.bring(conn, &frame::keepalive()),
            ("notification", [conn, words @ ..]) => {
                let [code, subcode] = words else { panic!("code and subcode") };
                let code = Code::of(code.parse().unwrap(), subcode.parse().unwrap());
                self.bring(conn, &Notification::new(code).compose());
            }
            ("begin", [conn]) => self.bring(conn, &Refresh::Begin.compose(Family::V4)),
            ("end", [conn]) => self.bring(conn, &Refresh::End.compose(Family::V4)),
            ("request", [conn]) => self.bring(conn, &Refresh::Request.compose(Family::V4)),
            ("announce", [conn, prefixes @ ..]) => {
                let prefixes: Vec<_> = prefixes.iter().map(|p| p.parse().unwrap()).collect();
                self.bring(conn, &announcement(&prefixes));
            }
            ("end-of-rib", [conn]) => self.bring(conn, &frame::compose(Kind::Update, &[0; 4])),
            ("update", [conn, hex]) => self.bring(conn, &frame::compose(Kind::Update, &bytes(hex))),
            ("raw", [conn, hex]) => self.bring(conn, &bytes(hex)),
            ("state", []) => writeln!(self.out, "< {}", self.session.state()).unwrap(),
            ("routes", []) => {
                self.rib.commit();
                let routes: Vec<_> =
                    self.rib.export(self.view).map(|(p, _)| p.to_string()).collect();
                let routes = format!("< routes: {}", routes.join(" "));
                writeln!(self.out, "{}", routes.trim_end()).unwrap();
            }
            _ => panic!("unknown step {verb} {rest:?}"),
        }
    }

    fn bring(&mut self, conn: &str, bytes: &[u8]) {
        self.rest.extend(bytes);
        let (rib, peer, out) = (&mut self.rib, self.peer, &mut self.out);
        let used =
            self.session.handle_bytes(self.now, conn_of(conn), &self.rest, |news| match news {
                News::Update(update) => {
                    for fault in &update.faults {
                        writeln!(out, "< {fault}").unwrap();
                    }
                    rib.apply(peer, update);
                }
                News::Table(change) => {
                    writeln!(out, "< {change:?}").unwrap();
                    change_table(rib, peer, change);
                }
            });
        self.rest.drain(..used);
        let counts = self.rib.peer_counts(self.peer);
        self.session.handle_counts(self.now, counts);
    }

    /// Lets time pass, stopping wherever the machine asks for it.
    fn advance(&mut self, to_s: u64) {
        let to = Now::default().plus_ms(to_s * 1000);
        while let Some(next) = self.session.poll_timeout().filter(|next| *next <= to.mono_ns) {
            self.now = Now::default().plus_ms(next / 1_000_000);
            self.session.handle_timeout(self.now);
            self.act();
        }
        self.now = to;
        self.session.handle_timeout(self.now);
    }

    fn act(&mut self) {
        while let Some(action) = self.session.poll_action() {
            let at = self.now.wall_ms / 1000;
            let text = match action {
                Action::Send(conn, bytes) => {
                    let frame = frame::first(&bytes, false).unwrap().unwrap();
                    let said = match frame.kind {
                        Kind::Notification => Notification::parse(frame.body).to_string(),
                        Kind::Refresh => {
                            format!("{:?}", Refresh::parse(frame.body).unwrap().unwrap())
                        }
                        _ => String::new(),
                    };
                    format!("{} {:?} {said}", conn.0, frame.kind)
                }
                Action::Close(conn) => format!("{} close", conn.0),
                Action::Table(change) => {
                    change_table(&mut self.rib, self.peer, change);
                    format!("{change:?}")
                }
                Action::Ended { established, end } => {
                    let what = if established { "session" } else { "connection" };
                    match end {
                        End::Told(told) => format!("{what} ended: told {told}"),
                        End::Ours(ours) => format!("{what} ended: ours {ours}"),
                        other => format!("{what} ended: {other:?}"),
                    }
                }
                other => format!("{other:?}"),
            };
            writeln!(self.out, "< at {at}: {}", text.trim_end()).unwrap();
        }
    }
}

fn conn_of(word: &str) -> Conn {
    Conn(word.parse().unwrap())
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn random_operations_keep_what_must_hold() {
    for seed in 0..3000 {
        let mut dice = Dice::seeded(seed);
        let mut left = 400;
        operations(|n| {
            left -= 1;
            (left > 0).then(|| dice.below(n))
        });
    }
}

/// The committed corpus of the fuzz target, whose bytes decide as chance does above.
#[test]
fn what_was_found_by_fuzzing_keeps_what_must_hold() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/bgp_session");
    let mut played = 0;
    for file in fs::read_dir(folder).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        let mut bytes = bytes.iter();
        operations(|n| bytes.next().map(|byte| u64::from(*byte) % n));
        played += 1;
    }
    assert!(played >= 40, "only {played} inputs found");
}
