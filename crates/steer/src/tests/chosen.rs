//! The nodes of one answer: how many, by which chances, and how they move.

use std::sync::Arc;

use locate::{Locator, testing};
use model::{Dice, Now};

use super::*;
use crate::{ClassTable, Client, Plan, Steering};

const PICKS: usize = 100_000;

/// The steering of one project on these pools and nodes (see [`node_map`]), whose default list is
/// `list`.
fn steering(
    pools: &str,
    nodes: &str,
    list: &str,
    change: impl FnOnce(&mut Project),
) -> (Locator, Steering) {
    let locator = testing::locator(&[]).unwrap();
    let mut map = node_map(pools, nodes);
    map.map.maps.insert(name("default"), steering_map(&format!("default = {list}")));
    let mut project = project("default", AllDown::LastGood);
    change(&mut project);
    map.map.projects.insert(name("videolan"), project);
    let table = ClassTable::compile(&locator, &map.map, 0).unwrap();
    (locator, Steering::new(Arc::new(table), Arc::new(map)).unwrap())
}

fn plan(steering: &Steering, family: Family) -> &Plan {
    let class = steering.table().lookup("192.0.2.1".parse().unwrap()).class;
    steering.plan(&name("videolan"), class, family).unwrap()
}

fn client(address: &str, scope: u8) -> Client {
    Client { address: address.parse().unwrap(), scope, now: Now::default() }
}

/// The nodes chosen for `client`, as `a b`.
fn chosen(plan: &Plan, dice: &mut Dice, client: &Client) -> String {
    let choice = plan.choose(dice, client);
    let names: Vec<&str> = choice.iter().map(|node| node.node.as_str()).collect();
    names.join(" ")
}

/// How often each answer was given, over [`PICKS`] networks of length 24.
fn tally(plan: &Plan) -> BTreeMap<String, usize> {
    let (mut dice, mut hits) = (Dice::seeded(11), BTreeMap::new());
    for network in 0..u32::try_from(PICKS).unwrap() {
        let address = Ipv4Addr::from_bits(network << 8).into();
        let client = Client { address, scope: 24, now: Now::default() };
        *hits.entry(chosen(plan, &mut dice, &client)).or_insert(0) += 1;
    }
    hits
}

/// Asserts that `hits` are as `shares` (answer and its probability) say: chi-square below its 99.9th
/// percentile for the degrees of freedom, by the approximation of Wilson and Hilferty.
fn assert_shares(hits: &BTreeMap<String, usize>, shares: &[(String, f64)]) {
    assert_eq!(hits.len(), shares.len(), "{hits:?}");
    let mut chi_square = 0.0;
    for (answer, share) in shares {
        let expected = share * PICKS as f64;
        chi_square += (hits[answer] as f64 - expected).powi(2) / expected;
    }
    let freedom = (shares.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let limit = freedom * (1.0 - spread + 3.09 * spread.sqrt()).powi(3);
    assert!(chi_square < limit, "{chi_square} of at most {limit}: {hits:?}");
}

const WEIGHTED: &str = "p: a=100 b=50 z=0 c=20 d=1 down=100 v4=30";
const NODES: &str = "a up up\nb up up\nz up up\nc up up\nd unknown up\ndown down down\nv4 up -";
const BY_WEIGHT: [(&str, f64); 5] =
    [("a", 100.0), ("b", 50.0), ("c", 20.0), ("d", 1.0), ("v4", 30.0)];

#[test]
fn one_node_by_its_weight_by_dice_and_by_network() {
    for sticky in [false, true] {
        let (_, steering) = steering(WEIGHTED, NODES, "p", |project| project.sticky = sticky);
        for (family, total) in [(Family::V4, 201.0), (Family::V6, 171.0)] {
            let nodes = BY_WEIGHT.iter().filter(|(n, _)| family == Family::V4 || *n != "v4");
            let shares: Vec<_> = nodes.map(|(n, w)| ((*n).to_owned(), w / total)).collect();
            assert_shares(&tally(plan(&steering, family)), &shares);
        }
    }
}

#[test]
fn several_nodes_each_once_and_each_by_weight_among_those_left() {
    for sticky in [false, true] {
        let (_, steering) = steering(WEIGHTED, NODES, "p", |project| {
            (project.answers, project.sticky) = (3, sticky);
        });
        let mut shares = Vec::new();
        for (a, of_a) in BY_WEIGHT {
            for (b, of_b) in BY_WEIGHT.into_iter().filter(|(b, _)| *b != a) {
                for (c, of_c) in BY_WEIGHT.into_iter().filter(|(c, _)| *c != a && *c != b) {
                    let share = of_a / 201.0 * of_b / (201.0 - of_a) * of_c / (201.0 - of_a - of_b);
                    shares.push((format!("{a} {b} {c}"), share));
                }
            }
        }
        // Answers too seldom for the test are taken as one.
        let rare = |share: f64| share * (PICKS as f64) < 10.0;
        let (few, mut shares): (Vec<_>, Vec<_>) = shares.into_iter().partition(|(_, s)| rare(*s));
        let mut hits = tally(plan(&steering, Family::V4));
        let hits_of_few = few.iter().filter_map(|(answer, _)| hits.remove(answer)).sum();
        hits.insert("few".to_owned(), hits_of_few);
        shares.push(("few".to_owned(), few.iter().map(|(_, share)| share).sum()));
        assert_shares(&hits, &shares);
    }
}

#[test]
fn as_many_nodes_as_wanted_or_as_there_are() {
    let nodes = "a up up\nb up up\nc up up\nd up -\ndown down down";
    let answers = |wanted: (u32, u32), list: &str, family| {
        let (_, steering) =
            steering("near: a=1 down=1\nfar: b=1 a=1\nworld: c=1 d=1", nodes, list, |project| {
                (project.answers, project.answers_elsewhere) = wanted;
                project.sticky = true;
            });
        let answer = chosen(plan(&steering, family), &mut Dice::seeded(1), &client("::", 0));
        let mut nodes: Vec<&str> = answer.split(' ').collect();
        // Which of two with equal weights comes first is by chance.
        if let Some(at) = nodes.windows(2).position(|pair| pair == ["d", "c"]) {
            nodes.swap(at, at + 1);
        }
        nodes.join(" ")
    };
    for (wanted, list, family, expected) in [
        ((1, 0), "near far world", Family::V4, "a"),
        ((8, 0), "near far world", Family::V4, "a"),
        ((1, 1), "near far world", Family::V4, "a b"),
        ((2, 3), "near far world", Family::V4, "a b c d"),
        ((2, 3), "near far world", Family::V6, "a b c"),
        ((1, 7), "near world far", Family::V4, "a c d b"),
        ((8, 0), "world near", Family::V4, "c d"),
        ((2, 2), "world near", Family::V4, "c d a"),
    ] {
        assert_eq!(answers(wanted, list, family), expected, "{wanted:?} {list} {family}");
    }
    let (_, nobody) = steering("p: v4=1", "v4 up -", "p", |_| ());
    let choice = plan(&nobody, Family::V6).choose(&mut Dice::seeded(1), &client("::", 0));
    assert!(choice.is_empty() && choice.first().is_none());
}

#[test]
fn with_nobody_up_there_is_no_elsewhere() {
    let (_, steering) = steering("p: a=1\nq: b=1", "a down@9 -\nb down@9 -", "p q", |project| {
        project.answers_elsewhere = 3;
    });
    let answer = chosen(plan(&steering, Family::V4), &mut Dice::seeded(1), &client("::", 0));
    assert_eq!(answer, "a");
}

#[test]
fn s2_a_sticky_answer_is_the_same_inside_its_scope_and_for_every_family_and_host() {
    let (_, steering) = steering(WEIGHTED, NODES, "p", |project| {
        (project.sticky, project.answers) = (true, 2);
    });
    let plan = |family| plan(&steering, family);
    let answer = |text: &str, scope, seed| {
        chosen(plan(Family::V4), &mut Dice::seeded(seed), &client(text, scope))
    };
    for (scope, addresses) in [
        (14, ["10.4.0.0", "10.7.255.255", "10.5.17.3"]),
        (32, ["192.0.2.1"; 3]),
        (0, ["0.0.0.0", "255.255.255.255", "9.9.9.9"]),
        (48, ["2001:db8:7::", "2001:db8:7:ffff::1", "2001:db8:7::2"]),
    ] {
        let answers: Vec<_> = (1..).zip(addresses).map(|(i, a)| answer(a, scope, i)).collect();
        assert!(answers.iter().all(|a| *a == answers[0]), "{answers:?}");
    }
    // IPv4-mapped clients are those of the IPv4 network.
    for third in 0..100 {
        let v4 = answer(&format!("10.0.{third}.1"), 24, 1);
        assert_eq!(answer(&format!("::ffff:10.0.{third}.9"), 120, 2), v4);
    }
    // Every DNS server of every version chooses these.
    let four: Vec<_> =
        ["10.0.0.0", "10.0.1.0", "10.0.2.0", "10.0.3.0"].map(|a| answer(a, 24, 1)).into();
    assert_eq!(four, EXPECTED);
}

/// Of 10.0.0.0/24 and the three networks behind it.
const EXPECTED: [&str; 4] = ["v4 b", "b a", "b a", "b a"];

#[test]
fn a_sticky_answer_moves_only_where_it_must() {
    let networks = || (0..20_000u32).map(|n| (Ipv4Addr::from_bits(n << 12).to_string(), 20));
    let answers = |nodes: &str| -> Vec<String> {
        let (_, steering) =
            steering("p: a=40 b=30 c=30", nodes, "p", |project| project.sticky = true);
        let plan = plan(&steering, Family::V4);
        let one = |(a, scope): (String, u8)| chosen(plan, &mut Dice::seeded(1), &client(&a, scope));
        networks().map(one).collect()
    };
    let all = answers("a up -\nb up -\nc up -");
    let without_b = answers("a up -\nb down -\nc up -");
    let mut moved = 0;
    for (before, after) in all.iter().zip(&without_b) {
        if before == "b" {
            moved += 1;
        } else {
            assert_eq!(before, after);
        }
    }
    // Three standard deviations of a binomial with p = 0.3 and n = 20,000 are 195.
    assert!(usize::abs_diff(moved, 6000) < 195, "{moved}");
}
