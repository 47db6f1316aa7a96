//! In virtual time.

use super::*;

fn limiter(rates: Rates) -> Limiter {
    Limiter::new(rates, [3; 16])
}

fn at(ms: u64) -> Now {
    Now::default().plus_ms(ms)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// How many of `n` answers at `now` were whole, cut, dropped.
fn ask(limiter: &Limiter, peer: &str, kind: Kind, zone: usize, now: Now, n: u32) -> [u32; 3] {
    let mut got = [0; 3];
    for _ in 0..n {
        got[limiter.take(ip(peer), kind, zone, now) as usize] += 1;
    }
    got
}

#[test]
fn a_network_gets_its_rate_and_two_seconds_of_it_at_once() {
    let limiter = limiter(Rates::default());
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Answers, 0, at(0), 3000), [2000, 500, 500]);
    // A tenth of a second later there is a tenth of a second's worth, for the whole network.
    assert_eq!(ask(&limiter, "192.0.2.200", Kind::Answers, 0, at(100), 200), [100, 50, 50]);
    // Another network, and another kind of answer, have their own.
    assert_eq!(ask(&limiter, "192.0.3.1", Kind::Answers, 0, at(100), 2000), [2000, 0, 0]);
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Errors, 0, at(100), 300), [200, 50, 50]);
    // Negative answers have their own in each zone.
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Negative, 0, at(100), 500), [400, 50, 50]);
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Negative, 1, at(100), 500), [400, 50, 50]);
    // After a pause all tokens are there again, and no more.
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Answers, 0, at(60_000), 3000), [2000, 500, 500]);
}

#[test]
fn ipv6_counts_by_its_56() {
    let limiter = limiter(Rates::default());
    ask(&limiter, "2001:db8:0:ff::1", Kind::Refused, 0, at(0), 200);
    assert_eq!(ask(&limiter, "2001:db8:0:1::2", Kind::Refused, 0, at(0), 2), [0, 1, 1]);
    assert_eq!(ask(&limiter, "2001:db8:0:100::1", Kind::Refused, 0, at(0), 2), [2, 0, 0]);
    // The same IPv4 network, whatever the socket makes of it.
    ask(&limiter, "::ffff:192.0.2.1", Kind::Refused, 0, at(0), 200);
    assert_eq!(ask(&limiter, "192.0.2.2", Kind::Refused, 0, at(0), 2), [0, 1, 1]);
}

#[test]
fn slip_says_how_many_are_cut() {
    for (slip, cut) in [(0, 0), (1, 600), (2, 300), (3, 200), (10, 60)] {
        let limiter = limiter(Rates { slip, ..Rates::default() });
        let got = ask(&limiter, "192.0.2.1", Kind::Errors, 0, at(0), 800);
        assert_eq!(got, [200, cut, 600 - cut], "slip {slip}");
    }
}

#[test]
fn the_exempt_and_kinds_without_a_rate_are_not_limited() {
    let exempt = vec!["192.0.2.128/25".parse().unwrap()];
    let limiter = limiter(Rates { per_second: [10, 0, 10, 10], exempt, ..Rates::default() });
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Negative, 0, at(0), 1000), [1000, 0, 0]);
    assert_eq!(ask(&limiter, "192.0.2.200", Kind::Answers, 0, at(0), 1000), [1000, 0, 0]);
    // Nobody forges queries of this host: the kernel takes them from itself alone.
    assert_eq!(ask(&limiter, "127.0.0.1", Kind::Answers, 0, at(0), 1000), [1000, 0, 0]);
    assert_eq!(ask(&limiter, "::1", Kind::Answers, 0, at(0), 1000), [1000, 0, 0]);
    // The rest of that network pays for all of it.
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Answers, 0, at(0), 100), [0, 50, 50]);
    assert_eq!(limiter.top().len(), 1);
    assert_eq!(limiter.top()[0].answers, 100);
}

#[test]
fn the_clock_of_the_table_may_wrap() {
    let limiter = limiter(Rates::default());
    // 2^40 units of 256 ns.
    let wrap_ms = (1u64 << 48) / 1_000_000;
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Errors, 0, at(wrap_ms - 1000), 300)[0], 200);
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Errors, 0, at(wrap_ms - 500), 300)[0], 50);
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Errors, 0, at(wrap_ms + 500), 300)[0], 100);
    // What was written a round ago, or half a one, is past.
    for days in [1, 2, 3, 4, 30] {
        let now = at(wrap_ms + days * 86_400_000);
        assert_eq!(ask(&limiter, "192.0.2.1", Kind::Errors, 0, now, 300)[0], 200, "{days}");
    }
}

#[test]
fn a_flood_from_everywhere_limits_nobody_else() {
    let limiter = limiter(Rates::default());
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Answers, 0, at(0), 2100)[0], 2000);
    // Each of a million networks asks once: none of them is limited, whoever they collide with.
    for network in 0..1_000_000u32 {
        let peer = IpAddr::from((0x0a00_0000 + (network << 8)).to_be_bytes());
        assert_eq!(limiter.take(peer, Kind::Answers, 0, at(1)), Granted::Whole, "{peer}");
    }
    // The table holds 65,536 of them; the one that was limited is not what it forgets.
    assert_eq!(Limiter::BYTES, 512 << 10);
    assert_eq!(ask(&limiter, "192.0.2.1", Kind::Answers, 0, at(1), 3), [1, 1, 1]);
}

#[test]
fn those_limited_most_are_known() {
    let limiter = limiter(Rates { per_second: [1; 4], ..Rates::default() });
    for (times, peer) in [(50, "192.0.2.1"), (70, "2001:db8::1")] {
        ask(&limiter, peer, Kind::Answers, 0, at(5), times);
    }
    // Many small ones take each other's places, not those of the large.
    for network in 0..200u8 {
        ask(&limiter, &format!("10.0.{network}.1"), Kind::Answers, 0, at(9), 3);
    }
    let top = limiter.top();
    assert_eq!(top.len(), 16);
    let first = Limited { network: "2001:db8::/56".parse().unwrap(), answers: 68, last_ms: 5 };
    let second = Limited { network: "192.0.2.0/24".parse().unwrap(), answers: 48, last_ms: 5 };
    assert_eq!(top[..2], [first, second]);
}

#[test]
fn threads_share_the_tokens() {
    let limiter = limiter(Rates::default());
    let whole: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| ask(&limiter, "192.0.2.1", Kind::Answers, 0, at(0), 1000)[0]))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // A place that changes under a thread four times in a row lets an answer through.
    assert!((2000..2200).contains(&whole), "{whole}");
}
