//! Plans: what DNS answers from.

use std::sync::Arc;

use super::*;
use crate::{ClassTable, OutdatedTable, Steering, Verdict};
use locate::{Locator, testing};

pub(super) fn world() -> (Locator, Steering) {
    let networks = [
        ("10.1.0.0/16".parse().unwrap(), evidence(7545, "AU")),
        ("10.2.0.0/16".parse().unwrap(), evidence(1, "NZ")),
        ("2001:db8:1::/48".parse().unwrap(), evidence(7545, "AU")),
    ];
    let locator = testing::locator(&networks).unwrap();
    let mut map = node_map(
        "waix: w=1\nasia: a=30 b=10 z=0\nworld: c=1 d=1",
        "w up -\na up up\nb up down@1764504000\nz up up\nc up up\nd drained up",
    );
    map.map.maps.insert(
        name("default"),
        steering_map("default = world\ncontinent OC = asia world\nasn 7545 = waix asia world"),
    );
    map.map.projects.insert(name("videolan"), project("default", AllDown::LastGood));
    map.map.projects.insert(name("quiet"), project("default", AllDown::NoData));
    let table = ClassTable::compile(&locator, &map.map, 0).unwrap();
    (locator, Steering::new(Arc::new(table), Arc::new(map)).unwrap())
}

fn planned(steering: &Steering, address: &str, family: Family) -> (Verdict, Vec<(String, u32)>) {
    let class = steering.table().lookup(address.parse().unwrap()).class;
    let plan = steering.plan(&name("videolan"), class, family).unwrap();
    assert!(plan.candidates.iter().all(|c| {
        !c.addresses.is_empty() && c.addresses.iter().all(|a| Family::of(*a) == family)
    }));
    let nodes = plan.candidates.iter().map(|c| (c.node.to_string(), c.weight)).collect();
    (plan.verdict, nodes)
}

#[test]
fn plans_by_class_and_family() {
    let (_, steering) = world();
    let nodes = |list: &[(&str, u32)]| list.iter().map(|(n, w)| (n.to_string(), *w)).collect();
    for (address, family, verdict, expected) in [
        ("10.1.0.1", Family::V4, Verdict::Pool, &[("w", 1)][..]),
        ("10.1.0.1", Family::V6, Verdict::NoFamily, &[]),
        ("2001:db8:1::1", Family::V4, Verdict::Pool, &[("w", 1)]),
        ("10.2.0.1", Family::V4, Verdict::Pool, &[("a", 30), ("b", 10)]),
        ("10.2.0.1", Family::V6, Verdict::Pool, &[("a", 30)]),
        ("192.0.2.1", Family::V4, Verdict::Pool, &[("c", 1)]),
        ("192.0.2.1", Family::V6, Verdict::Pool, &[("c", 1), ("d", 1)]),
    ] {
        let found = planned(&steering, address, family);
        assert_eq!(found, (verdict, nodes(expected)), "{address} {family}");
    }
    assert!(
        steering
            .plan(&name("nobody"), steering.table().lookup("::".parse().unwrap()).class, Family::V4)
            .is_none()
    );
}

#[test]
fn health_changes_go_with_the_same_table_and_other_maps_do_not() {
    let (_, steering) = world();
    let mut map = NodeMap::clone(steering.map());
    map.states.get_mut(&name("w")).unwrap().v4 = state("down");
    let after = Steering::new(steering.table().clone(), Arc::new(map.clone())).unwrap();
    let found = planned(&after, "10.1.0.1", Family::V4);
    assert_eq!(found, (Verdict::Spilled, vec![("a".into(), 30), ("b".into(), 10)]));
    // The first pool never had IPv6 and is down now: IPv6 follows to the next.
    assert_eq!(planned(&after, "10.1.0.1", Family::V6), (Verdict::Spilled, vec![("a".into(), 30)]));

    map.map.maps.get_mut(&name("default")).unwrap().default = names("asia");
    let error = Steering::new(steering.table().clone(), Arc::new(map)).unwrap_err();
    assert_eq!(error, OutdatedTable);
}

#[test]
fn each_project_has_its_own_policy() {
    let (_, steering) = world();
    let mut map = NodeMap::clone(steering.map());
    for states in map.states.values_mut() {
        states.v4 = state("down");
    }
    let steering = Steering::new(steering.table().clone(), Arc::new(map)).unwrap();
    let class = steering.table().lookup("192.0.2.1".parse().unwrap()).class;
    let verdict = |project| steering.plan(&name(project), class, Family::V4).unwrap().verdict;
    assert_eq!((verdict("videolan"), verdict("quiet")), (Verdict::AllDown, Verdict::NoData));
}

#[test]
fn shares_are_those_of_the_weights() {
    let (_, steering) = world();
    let shares = |address: &str, family| -> Vec<(String, f64)> {
        let class = steering.table().lookup(address.parse().unwrap()).class;
        let plan = steering.plan(&name("videolan"), class, family).unwrap();
        plan.shares().map(|(node, share)| (node.to_string(), share)).collect()
    };
    assert_eq!(shares("10.2.0.1", Family::V4), [("a".into(), 0.75), ("b".into(), 0.25)]);
    assert_eq!(shares("10.1.0.1", Family::V4), [("w".into(), 1.0)]);
    assert_eq!(shares("10.1.0.1", Family::V6), []);
}
