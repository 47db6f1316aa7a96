//! For tests: a peer that does whatever chance says, and what must hold whatever it does.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // chance is kept in bounds here
#![allow(clippy::cast_possible_truncation, clippy::panic, clippy::unwrap_used)]

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use model::{Asn, Family, Now};

use crate::open::{Capabilities, Families, GracefulRestart, Open};
use crate::refresh::Refresh;
use crate::session::{Action, Conn, News, Params, Session, TableChange, Way};
use crate::{Code, Kind, PeerId, Rib, frame};

/// What AS 65000 expects of a peer of AS 65001.
pub fn params() -> Params {
    Params {
        local_as: Asn::new(65000).unwrap(),
        identifier: Ipv4Addr::new(192, 0, 2, 100),
        peer_as: Asn::new(65001).unwrap(),
        passive: false,
        hold_s: 90,
        families: Families::ALL,
        max_prefixes: [2, 2],
    }
}

/// The OPEN of a peer that can everything, unless the words say otherwise.
pub fn open(params: &Params, words: &[&str]) -> Vec<u8> {
    let mut open = Open {
        asn: params.peer_as,
        hold_s: 90,
        identifier: Ipv4Addr::new(192, 0, 2, 1),
        capabilities: Capabilities {
            families: Some(Families::ALL),
            route_refresh: true,
            enhanced_refresh: true,
            four_octet_as: Some(params.peer_as.get()),
            ..<_>::default()
        },
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("as", asn) => {
                open.asn = asn.parse().unwrap();
                open.capabilities.four_octet_as = Some(open.asn.get());
            }
            ("hold", s) => open.hold_s = s.parse().unwrap(),
            ("id", id) => open.identifier = id.parse().unwrap(),
            ("no-families", _) => open.capabilities.families = None,
            ("plain-refresh", _) => open.capabilities.enhanced_refresh = false,
            // Seconds, and whether it went on forwarding IPv4.
            ("restart", said) => {
                let (s, forwarding) = said.split_once(',').unwrap_or((said, ""));
                open.capabilities.graceful_restart = Some(GracefulRestart {
                    restart_s: s.parse().unwrap(),
                    families: Families { v4: true, v6: false },
                    forwarding: Families { v4: forwarding == "forwarding", v6: false },
                });
            }
            _ => panic!("unknown word {word}"),
        }
    }
    open.compose()
}

/// An UPDATE that announces these /8 to /32 prefixes.
pub fn announcement(prefixes: &[Ipv4Net]) -> Vec<u8> {
    let attributes = [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9, 0x40, 3, 4, 192, 0, 2, 1];
    let mut body = vec![0, 0, 0, attributes.len() as u8];
    body.extend(attributes);
    for prefix in prefixes {
        body.push(prefix.prefix_len());
        body.extend(&prefix.addr().octets()[..usize::from(prefix.prefix_len().div_ceil(8))]);
    }
    frame::compose(Kind::Update, &body)
}

/// Does to the table what a session says.
pub fn change_table(rib: &mut Rib, peer: PeerId, change: TableChange) {
    match change {
        TableChange::MarkStale(family) => rib.mark_stale(peer, family),
        TableChange::Sweep(family) => rib.sweep(peer, family),
        TableChange::Clear(family) => rib.clear(peer, family),
    }
}

/// Plays a list of operations and checks what must hold after each: `choices(n)` gives a number below
/// `n`, and `None` at the end of the list.
pub fn operations(mut choices: impl FnMut(u64) -> Option<u64>) {
    let params = Params { max_prefixes: [40, 40], ..params() };
    let mut session = Session::new(params.clone());
    let mut rib = Rib::new([1, 2]);
    let view = rib.add_view("v").unwrap();
    let peer = rib.add_peer(view, false).unwrap();
    let (mut now, mut next_conn) = (Now::default(), 0u64);
    let mut open_conns: Vec<Conn> = Vec::new();
    // Since a session ended in a graceful restart, until its routes are gone or another one is up.
    let (mut up, mut restarts_until) = (false, None::<u64>);
    while let Some(choice) = choices(14) {
        let Some(which) = choices(4) else { return };
        let which = usize::try_from(which).unwrap();
        let conn = open_conns.get(which).copied().unwrap_or(Conn(1 << 40));
        let was_up = up;
        let mut bring = |session: &mut Session, bytes: &[u8]| {
            let used = session.handle_bytes(now, conn, bytes, |news| match news {
                News::Update(update) => {
                    assert!(was_up, "routes of a session that is not up");
                    rib.apply(peer, update);
                }
                News::Table(change) => change_table(&mut rib, peer, change),
            });
            assert!(used <= bytes.len());
            session.handle_counts(now, rib.peer_counts(peer));
        };
        match choice {
            0 => session.start(now),
            1 => session.stop(now, Code::Shutdown),
            2 => session.handle_connect_failed(now),
            3 | 4 => {
                next_conn += 1;
                open_conns.push(Conn(next_conn));
                let way = if choice == 3 { Way::In } else { Way::Out };
                session.handle_connected(now, Conn(next_conn), way);
            }
            5 => {
                open_conns.retain(|other| *other != conn);
                session.handle_closed(now, conn);
            }
            6 => {
                let words: [&[&str]; 4] =
                    [&["restart=60,forwarding"], &["hold=3"], &["plain-refresh"], &["no-families"]];
                bring(&mut session, &open(&params, words[which]));
            }
            7 => bring(&mut session, &frame::keepalive()),
            8 => {
                let Some(n) = choices(64) else { return };
                let n = u8::try_from(n).unwrap();
                let prefixes = [n, n / 2].map(|n| Ipv4Net::new([10, n, 0, 0].into(), 16).unwrap());
                bring(&mut session, &announcement(&prefixes));
            }
            9 => {
                let refresh = [Refresh::Begin, Refresh::End, Refresh::Request, Refresh::End][which];
                bring(&mut session, &refresh.compose(Family::V4));
            }
            10 => {
                let length = choices(80).unwrap_or(0);
                let bytes: Vec<u8> = (0..length)
                    .map_while(|_| choices(256))
                    .map(|byte| u8::try_from(byte).unwrap())
                    .collect();
                let kinds = [Kind::Open, Kind::Update, Kind::Notification, Kind::Refresh];
                bring(&mut session, &frame::compose(kinds[which], &bytes));
            }
            11 => bring(&mut session, &frame::compose(Kind::Update, &[0; 4])),
            12 => drop(session.refresh()),
            _ => {
                now = now.plus_ms([1, 2500, 40_000, 400_000][which]);
                session.handle_timeout(now);
                // Whoever is due has acted: nothing is asked for twice.
                assert!(session.poll_timeout().is_none_or(|at| at > now.mono_ns));
            }
        }
        while let Some(action) = session.poll_action() {
            match action {
                Action::Send(conn, bytes) => {
                    assert!(open_conns.contains(&conn), "{conn:?} is not open");
                    let frame = frame::first(&bytes, false).unwrap().unwrap();
                    assert_ne!(frame.kind, Kind::Update, "B1");
                }
                Action::Close(conn) => open_conns.retain(|other| *other != conn),
                Action::Table(change) => change_table(&mut rib, peer, change),
                Action::Up => {
                    assert!(!up, "up twice");
                    (up, restarts_until) = (true, None);
                }
                Action::Ended { established: true, .. } => {
                    assert!(up, "ended before it was up");
                    up = false;
                    // The peer said 60 s or, in an OPEN of random bytes, up to 4095.
                    restarts_until = Some(now.plus_ms(4096 * 1000).mono_ns);
                }
                Action::Connect | Action::CancelConnect | Action::Ended { .. } => {}
            }
        }
        assert!(open_conns.len() <= 2, "{open_conns:?}");
        assert_eq!(up, session.agreed().is_some());
        if !up && restarts_until.is_none_or(|until| until < now.mono_ns) {
            assert_eq!(rib.peer_counts(peer), [0, 0], "routes of nobody");
        }
        rib.commit();
        assert_eq!(rib.view_counts(view), rib.peer_counts(peer), "the view is what its peer says");
    }
}
