//! What an edge does with a client: every way it can go, and that nobody is sent in a circle.

use std::sync::Arc;

use locate::{Locator, testing};
use proptest::prelude::*;

use super::*;
use crate::redirect::{Belongs, Circumstances, Decision, Visit, is_located};
use crate::{ClassTable, Steering};

/// Clients: 10.1/16 in AS 7545 (waix, asia, world), 10.2/16 in New Zealand (asia, world), others
/// (world); `island` belongs to a list that only AS 9 has. All nodes are up but where `nodes` says
/// otherwise, and `lame` has weight 0.
fn world(nodes: &str) -> (Locator, Steering) {
    let networks = [
        ("10.1.0.0/16".parse().unwrap(), evidence(7545, "AU")),
        ("10.2.0.0/16".parse().unwrap(), evidence(1, "NZ")),
        ("2001:db8:1::/48".parse().unwrap(), evidence(7545, "AU")),
        ("192.0.2.0/24".parse().unwrap(), evidence(2, "DE")),
    ];
    let locator = testing::locator(&networks).unwrap();
    let usual = "w up -\na up up\nb up -\nlame up up\nc up up\nd up up\ni up up";
    let merged: Vec<String> = usual
        .lines()
        .map(|line| {
            let node = line.split(' ').next().unwrap();
            let other = nodes.lines().find(|l| l.split(' ').next() == Some(node));
            other.unwrap_or(line).to_owned()
        })
        .collect();
    let mut map = node_map(
        "waix: w=1\nasia: a=30 b=10 lame=0\nworld: c=1 d=1\nisland: i=1",
        &merged.join("\n"),
    );
    let rules =
        "default = world\ncontinent OC = asia world\nasn 7545 = waix asia world\nasn 9 = island";
    map.map.maps.insert(name("default"), steering_map(rules));
    let wanting =
        Project { redirect: true, alternates: true, ..project("default", AllDown::LastGood) };
    map.map.projects.insert(name("videolan"), wanting);
    map.map.projects.insert(name("quiet"), project("default", AllDown::LastGood));
    let table = ClassTable::compile(&locator, &map.map, 0).unwrap();
    (locator, Steering::new(Arc::new(table), Arc::new(map)).unwrap())
}

fn visit<'a>(
    (locator, steering): &(Locator, Steering),
    project: &'a Name,
    client: &str,
    here: &'a Name,
) -> Visit<'a> {
    let client: IpAddr = client.parse().unwrap();
    let is_located = is_located(&locator.locate(client));
    Visit::new(steering, project, client, is_located, here)
}

/// What becomes of a client of `videolan`: `serve WHY` or `NODE WHY`.
fn told(world: &(Locator, Steering), client: &str, here: &str, with: &Circumstances<'_>) -> String {
    let (project, here) = (name("videolan"), name(here));
    match world.1.decide(&visit(world, &project, client, &here), with) {
        Decision::Serve(stay) => format!("serve {stay}"),
        Decision::Redirect(node, why) => format!("{node} {why}"),
    }
}

const OC: &str = "10.2.0.1";
const WA: &str = "10.1.0.1";
const WA6: &str = "2001:db8:1::1";
const ELSE: &str = "192.0.2.1";

#[test]
fn a_client_is_sent_to_the_pool_it_belongs_to_when_it_is_elsewhere() {
    for (nodes, client, here, expected) in [
        ("", WA, "w", "serve belongs"),
        ("", WA, "a", "w missteered"),
        ("", WA, "c", "w missteered"),
        // IPv4-mapped addresses are of IPv4.
        ("", "::ffff:10.1.0.1", "c", "w missteered"),
        ("b down -", OC, "c", "a missteered"),
        ("", OC, "b", "serve belongs"),
        // Of the pool, though clients are not sent to it any more.
        ("", OC, "lame", "serve belongs"),
        ("d down down", ELSE, "a", "c missteered"),
        ("", ELSE, "d", "serve belongs"),
        // Nobody knows where it is: another node would be no better a guess.
        ("", "198.51.100.1", "a", "serve belongs"),
        // A node of no map knows nothing.
        ("", ELSE, "stranger", "serve belongs"),
        // Better nodes that do not serve, and those of which nobody knows whether they do.
        ("w down -", WA, "a", "serve belongs"),
        ("w down -\na up up\nb down -", WA, "c", "a missteered"),
        ("w drained -\nb down -", WA, "c", "a missteered"),
        ("w unknown -", WA, "c", "serve nobody-else"),
        // It came to a node that DNS does not give any more: its pool would answer if it could.
        ("w drained -", WA, "w", "serve belongs"),
        ("w down -", WA, "w", "serve belongs"),
        // Nobody is up at all.
        ("w down -\na down down\nb down -\nc down down\nd down down", WA, "i", "serve belongs"),
        // No pool before asia has addresses of IPv6: that is no data, so nobody knows.
        ("", WA6, "c", "serve belongs"),
        ("w up up", WA6, "c", "w missteered"),
        ("w up drained", WA6, "c", "a missteered"),
    ] {
        let world = world(nodes);
        let found = told(&world, client, here, &Circumstances::default());
        assert_eq!(found, expected, "{client} at {here}, {nodes}");
    }
}

#[test]
fn where_nobody_knows_nothing_is_said() {
    for (nodes, client, here, expected) in [
        ("", WA, "w", Belongs::Here),
        ("", WA, "a", Belongs::To(&name("waix"))),
        ("", "198.51.100.1", "a", Belongs::Unknown),
        ("", WA, "stranger", Belongs::Unknown),
        ("", WA6, "c", Belongs::Unknown),
        ("w down -\na down down\nb down -\nc down down\nd down down", WA, "i", Belongs::Unknown),
    ] {
        let world = world(nodes);
        let (project, here) = (name("quiet"), name(here));
        let visit = visit(&world, &project, client, &here);
        assert_eq!(world.1.belongs(&visit), expected, "{client} at {here}, {nodes}");
    }
}

#[test]
fn a_client_that_cannot_use_nodes_gets_another_or_is_served() {
    for (nodes, client, here, avoid, expected) in [
        // Others of its plan, then further pools of its list, then any of the map.
        ("", OC, "a", "a", "b avoid"),
        ("", OC, "a", "A", "b avoid"),
        ("d down down", OC, "a", "a b", "c avoid"),
        ("", OC, "a", "a b c", "d avoid"),
        ("", OC, "a", "a b c d", "i avoid"),
        ("", OC, "a", "a b c d i", "w avoid"),
        ("", OC, "a", "a b c d w i", "serve nobody-else"),
        ("", OC, "a", "a nobody b c d w i", "serve nobody-else"),
        // Never one that is drained, down, unknown or without weight.
        ("b drained -\nc down down\nd unknown up", OC, "a", "a", "i avoid"),
        // Missteered too: to avoid comes first, and the better node may be among the avoided.
        ("", WA, "c", "c", "w avoid"),
        ("b down -", WA, "c", "c w", "a avoid"),
        // It names others only.
        ("", WA, "c", "w", "serve nobody-else"),
        ("", WA, "w", "a b", "serve belongs"),
        ("", OC, "c", "a", "b missteered"),
    ] {
        let world = world(nodes);
        let avoid: Vec<&str> = avoid.split(' ').collect();
        let with = Circumstances { avoid: &avoid, ..Circumstances::default() };
        assert_eq!(told(&world, client, here, &with), expected, "{client} {here} {avoid:?}");
        let fixed = Circumstances { is_fixed: true, is_spent: true, ..with };
        assert_eq!(told(&world, client, here, &fixed), "serve fixed-name");
    }
}

#[test]
fn who_belongs_is_sent_on_while_the_bill_is_spent() {
    let spent = Circumstances { is_spent: true, ..Circumstances::default() };
    for (nodes, client, here, expected) in [
        ("", OC, "a", "b bill"),
        ("b down -", OC, "a", "serve nobody-else"),
        ("", WA, "w", "serve nobody-else"),
        ("", WA, "c", "w missteered"),
    ] {
        assert_eq!(told(&world(nodes), client, here, &spent), expected, "{client} {here}");
    }
}

#[test]
fn a_project_that_does_not_want_it_sends_nobody_and_names_nobody() {
    let (world, quiet, here) = (world(""), name("quiet"), name("c"));
    let visit = visit(&world, &quiet, WA, &here);
    let with = Circumstances { avoid: &["c"], is_spent: true, ..Circumstances::default() };
    assert_eq!(world.1.decide(&visit, &with), Decision::Serve(crate::redirect::Stay::Off));
    assert!(world.1.alternates(&visit, &[]).is_empty());
    // Reports show it all the same.
    assert_eq!(world.1.missteered(&visit), Some(&name("waix")));
}

#[test]
fn a_network_goes_to_one_node_and_networks_by_weight() {
    let world = world("");
    let (project, here) = (name("videolan"), name("c"));
    let mut to_a = 0;
    for network in 0..=255 {
        let of = |host: u8| {
            let client = format!("10.2.{network}.{host}");
            told(&world, &client, "c", &Circumstances::default())
        };
        assert_eq!(of(0), of(255));
        to_a += u32::from(of(0) == "a missteered");
        let visit = visit(&world, &project, &format!("10.2.{network}.9"), &here);
        let alternates: Vec<&str> =
            world.1.alternates(&visit, &[]).into_iter().map(Name::as_str).collect();
        assert!(alternates == ["a", "b"] || alternates == ["b", "a"], "{alternates:?}");
    }
    // 192 of 256 by the weights 30 and 10; three standard deviations are 21.
    assert!((171..=213).contains(&to_a), "{to_a}");
}

#[test]
fn alternates_come_from_the_plan_then_from_the_list() {
    for (nodes, client, here, expected) in [
        ("b down -\nd down down", WA, "w", "a c"),
        ("b down -\nd down down", WA, "c", "w a"),
        ("b down -\nd down down", OC, "a", "c"),
        ("c down down", ELSE, "c", "d"),
        ("c down down\nd unknown down", ELSE, "a", ""),
        ("w up up\nb down -\nc up drained", WA6, "d", "w a"),
    ] {
        let world = world(nodes);
        let (project, here) = (name("videolan"), name(here));
        let visit = visit(&world, &project, client, &here);
        let others = |avoid: &[&str]| {
            let found = world.1.alternates(&visit, avoid);
            found.into_iter().map(Name::as_str).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(others(&[]), expected, "{client} {here} {nodes}");
        let of_all = ["w", "a", "b", "c", "d", "i"];
        assert_eq!(others(&of_all), "", "the client can use none of them");
    }
}

#[test]
fn what_is_told_to_people_is_what_is_done() {
    let world = world("b down -");
    let (project, here) = (name("videolan"), name("d"));
    let visit = visit(&world, &project, OC, &here);
    let told = world.1.at_node(&visit, &Circumstances::default());
    assert_eq!(
        told.to_string(),
        "at d\n  the client is missteered: it belongs to pool asia\n  \
         302 to a: missteered, for objects of 1 MiB and more\n  serves smaller ones, \
         and names as alternates: a, c\n"
    );
    let avoids = Circumstances { avoid: &["d"], ..Circumstances::default() };
    let told = world.1.at_node(&visit, &avoids).to_string();
    assert!(told.ends_with("\n  302 to a: avoid\n"), "it is never served: {told}");
    let here = name("a");
    let told = world
        .1
        .at_node(&self::visit(&world, &project, OC, &here), &Circumstances::default())
        .to_string();
    assert!(told.contains("not missteered\n  serves: belongs\n  names as"), "{told}");
}

proptest! {
    /// Whoever is sent anywhere is sent to a node that is up, is another and was not refused; and
    /// under its own name that node serves.
    #[test]
    fn nobody_is_sent_in_a_circle(
        states in prop::collection::vec(prop::sample::select(&["up", "down", "unknown", "drained"][..]), 7),
        client in prop::sample::select(&[OC, WA, WA6, ELSE][..]),
        here in prop::sample::select(&["w", "a", "b", "lame", "c", "d", "i", "stranger"][..]),
        avoid in prop::sample::subsequence(vec!["w", "a", "b", "lame", "c", "d", "i", "x"], 0..=8),
        is_spent in any::<bool>(),
    ) {
        let nodes = ["w", "a", "b", "lame", "c", "d", "i"];
        let lines = nodes.iter().zip(&states).map(|(n, s)| format!("{n} {s} {s}"));
        let world = world(&lines.collect::<Vec<_>>().join("\n"));
        let with = Circumstances { avoid: &avoid, is_fixed: false, is_spent };
        let found = told(&world, client, here, &with);
        let (to, _) = found.split_once(' ').unwrap();
        if to != "serve" {
            let at = nodes.iter().position(|n| *n == to).unwrap();
            prop_assert!(states[at] == "up" && to != here && to != "lame" && !avoid.contains(&to), "{found}");
            let fixed = Circumstances { is_fixed: true, ..with };
            prop_assert_eq!(told(&world, client, to, &fixed), "serve fixed-name");
        }
    }
}
