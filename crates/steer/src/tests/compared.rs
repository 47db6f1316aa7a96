//! Differences between two steerings, to the address.

use std::sync::Arc;

use locate::{Locator, testing};

use super::*;
use crate::diff::{Amount, Differ, Part};
use crate::{ClassTable, Steering};

fn locator(networks: &[(&str, u32, &str)]) -> Locator {
    let networks: Vec<_> =
        networks.iter().map(|(net, asn, cc)| (net.parse().unwrap(), evidence(*asn, cc))).collect();
    testing::locator(&networks).unwrap()
}

fn steering(locator: &Locator, rules: &str, pools: &str, nodes: &str) -> Steering {
    let mut map = node_map(pools, nodes);
    map.map.maps.insert(name("default"), steering_map(rules));
    map.map.projects.insert(name("x"), project("default", AllDown::NoData));
    let table = ClassTable::compile(locator, &map.map, 0).unwrap();
    Steering::new(Arc::new(table), Arc::new(map)).unwrap()
}

const NETWORKS: [(&str, u32, &str); 5] = [
    ("10.0.0.0/8", 1, "NZ"),
    ("10.5.0.0/16", 7, "NZ"),
    ("11.0.0.0/9", 2, "AU"),
    ("2001:db8::/32", 1, "NZ"),
    ("2001:db8:5::/48", 7, "AU"),
];
const POOLS: &str = "world: w=1\nasia: a=3 b=1";
const NODES: &str = "w up up\na up up\nb up up";

fn amount(clients: f64, bytes: f64) -> Amount {
    Amount { clients, bytes }
}

fn pools(part: &Part) -> Vec<(&str, &str, Amount)> {
    part.pools.iter().map(|row| (&*row.key.0, &*row.key.1, row.amount)).collect()
}

#[test]
fn what_moves_is_counted_to_the_address_and_by_bytes() {
    let locator = locator(&NETWORKS);
    let old = steering(&locator, "default = world\ncountry NZ = asia world", POOLS, NODES);
    let new = steering(
        &locator,
        "default = world\ncountry AU = asia world\ncountry NZ = asia world\nasn 7 = world",
        POOLS,
        NODES,
    );
    let mut differ = Differ::new(&old, &new, &locator);
    for (client, bytes) in [("10.5.1.0", 100), ("11.0.0.9", 7), ("10.0.0.1", 1000), ("10.5.1.0", 5)]
    {
        differ.sent(&name("x"), client.parse().unwrap(), bytes);
    }
    differ.sent(&name("y"), "10.5.1.0".parse().unwrap(), 99);
    let diff = differ.diff(1);
    let [v4, v6] = &diff.projects[..] else { panic!("{diff:?}") };
    let (all, slash_16, slash_9) = (4_294_967_296.0, 65_536.0, 8_388_608.0);
    assert_eq!(v4.all, amount(all, 1112.0));
    assert_eq!(v4.moved, amount(slash_9 + slash_16, 112.0));
    assert_eq!(
        pools(v4),
        [("asia", "world", amount(slash_16, 105.0)), ("world", "asia", amount(slash_9, 7.0))]
    );
    // Everybody who leaves the pool leaves its nodes.
    assert_eq!(v4.moved_between_nodes, v4.moved);
    let node =
        |part: &Part, n: &str| part.nodes.iter().find(|row| row.node == name(n)).unwrap().clone();
    let a = node(v4, "a");
    assert_eq!(a.before, amount(0.75 * 16_777_216.0, 0.75 * 1105.0));
    assert_eq!(a.after.clients, 0.75 * (16_777_216.0 - slash_16 + slash_9));
    assert_eq!((v4.countries.len(), v4.countries[0].key), (1, "NZ".parse().ok()));
    assert_eq!((v4.asns[0].key, v4.asns[0].amount), (Asn::new(7), amount(slash_16, 105.0)));
    // IPv6 in networks of 48 bits. The one in AU is decided by its AS, as before by default.
    assert_eq!((v6.family, v6.all.clients), (Family::V6, 281_474_976_710_656.0));
    assert_eq!(v6.moved, Amount::default());
    assert_eq!(serde_json::to_value(&diff).unwrap()["projects"][0]["moved"]["bytes"], 112.0);
}

#[test]
fn weights_and_states_move_parts() {
    let locator = locator(&NETWORKS);
    let rules = "default = asia world";
    let old = steering(&locator, rules, POOLS, NODES);
    let weights = steering(&locator, rules, "world: w=1\nasia: a=1 b=1", NODES);
    let diff = Differ::new(&old, &weights, &locator).diff(9);
    let v4 = &diff.projects[0];
    assert_eq!((v4.moved, v4.moved_between_nodes.clients), (Amount::default(), 1_073_741_824.0));

    let down = steering(&locator, rules, POOLS, "w down down\na down up\nb down up");
    let diff = Differ::new(&old, &down, &locator).diff(9);
    assert_eq!(pools(&diff.projects[0]), [("asia", "[nodata]", amount(4_294_967_296.0, 0.0))]);
    assert_eq!(diff.projects[0].moved.shares(diff.projects[0].all), (1.0, 0.0));
    assert_eq!(diff.projects[0].moved_between_nodes, diff.projects[0].all);
    assert_eq!(diff.projects[1].moved, Amount::default());
}

#[test]
fn other_databases_move_clients_too() {
    let (before, after) = (locator(&NETWORKS), locator(&[("10.0.0.0/9", 1, "NZ")]));
    let rules = "default = world\ncountry NZ = asia world";
    let old = steering(&before, rules, POOLS, NODES);
    let new = steering(&after, rules, POOLS, NODES);
    let diff = Differ::new(&old, &new, &after).diff(9);
    let half = amount(8_388_608.0, 0.0);
    assert_eq!(pools(&diff.projects[0]), [("asia", "world", half)]);
    // A /32 of IPv6 but for a /48 in it.
    assert_eq!(pools(&diff.projects[1]), [("asia", "world", amount(65_535.0, 0.0))]);
    assert_eq!(diff.not_compared, []);
}
