//! Explanations: the same walk as the plan (S5), and the words people read.

use super::planned::world;
use super::*;
use crate::{DecidedBy, Excluded};

#[test]
fn explain_prints_every_step() {
    let (locator, steering) = world();
    let text = steering
        .explain(&name("videolan"), "10.1.0.9".parse().unwrap(), &locator)
        .unwrap()
        .to_string();
    let expected = "\
client    10.1.0.9
project   videolan (videolan.cdn.example), answers live 60 s
location  10.1.0.0/16: AS7545, country AU, continent OC
map       default: asn 7545 -> waix, asia, world
class     1, the same for all of 10.1.0.0/16
node map  generation 7

A (IPv4): pool waix
  pool waix: answers
    w  weight 1      100.0 %  192.0.2.1  (up since 1970-01-01 00:01:40Z: a test)
  pool asia: not-reached
    a  weight 30     excluded: pool-not-reached  192.0.2.2  (up since 1970-01-01 00:01:40Z: a test)
    b  weight 10     excluded: pool-not-reached  192.0.2.3  (up since 1970-01-01 00:01:40Z: a test)
    z  weight 0      excluded: pool-not-reached  192.0.2.4  (up since 1970-01-01 00:01:40Z: a test)
  pool world: not-reached
    c  weight 1      excluded: pool-not-reached  192.0.2.5  (up since 1970-01-01 00:01:40Z: a test)
    d  weight 1      excluded: pool-not-reached  192.0.2.6  (drained since 1970-01-01 00:01:40Z: a test)

AAAA (IPv6): no-family
  pool waix: nodata
    w  weight 1      excluded: no-address
";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn explain_says_since_when_and_why() {
    let (locator, steering) = world();
    let explained =
        steering.explain(&name("videolan"), "::ffff:10.2.0.1".parse().unwrap(), &locator).unwrap();
    let text = explained.to_string();
    for line in [
        "client    ::ffff:10.2.0.1\n",
        "location  10.2.0.0/16: AS1, country NZ, continent OC\n",
        "map       default: continent OC -> asia, world\n",
        "the same for all of ::ffff:10.2.0.0/112\n",
        "    a  weight 30      75.0 %  192.0.2.2  ",
        "    b  weight 10     excluded: down  2001:db8::3  (down since 2025-11-30 12:00:00Z: a test)\n",
        "    z  weight 0      excluded: weight-zero  2001:db8::4  ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let json = serde_json::to_value(&explained).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!(json["decided_by"]["continent"], "OC");
    assert_eq!(json["scope"], "::ffff:10.2.0.0/112");
    assert_eq!(json["walks"][1]["family"], "v6");
    assert_eq!(json["walks"][1]["verdict"], "pool");
    assert_eq!(json["walks"][1]["pools"][0]["nodes"][1]["excluded"], "down");
    assert_eq!(json["walks"][1]["pools"][0]["nodes"][1]["state"]["since_ms"], 1_764_504_000_000u64);
    assert_eq!(json["walks"][0]["pools"][0]["nodes"][0]["share"], 0.75);
    assert!(steering.explain(&name("nobody"), "::".parse().unwrap(), &locator).is_none());
}

#[test]
fn explain_names_the_override_and_who_does_not_serve() {
    let (locator, steering) = world();
    let mut map = nodemap::NodeMap::clone(steering.map());
    let rules = map.map.maps.get_mut(&name("default")).unwrap();
    let rule = |prefix: &str, pools, expires_ms| nodemap::Override {
        prefix: prefix.parse().unwrap(),
        pools: names(pools),
        owner: "noc".into(),
        reason: "cable cut".into(),
        expires_ms,
    };
    rules.overrides = vec![
        rule("10.1.8.0/21", "asia world", Some(1_798_761_600_000)),
        rule("10.1.8.0/24", "asia", None),
    ];
    let serve = nodemap::Serve { asn: vec![Asn::new(1).unwrap()], country: Vec::new() };
    map.map.nodes.get_mut(&name("a")).unwrap().serve = Some(serve);
    let project = map.map.projects.get_mut(&name("videolan")).unwrap();
    (project.answers, project.answers_elsewhere, project.sticky) = (2, 1, true);
    let table = crate::ClassTable::compile(&locator, &map.map, 0).unwrap();
    let steering =
        crate::Steering::new(std::sync::Arc::new(table), std::sync::Arc::new(map)).unwrap();
    let explain = |address: &str| {
        steering.explain(&name("videolan"), address.parse().unwrap(), &locator).unwrap()
    };
    let text = explain("10.1.9.9").to_string();
    for line in [
        "\nmap       default: override 10.1.8.0/21 -> asia, world\n\
         override  by noc: cable cut; until 2027-01-01 00:00:00Z\nclass ",
        "the same for all of 10.1.9.0/24\n\
         nodes     2 of the pool that answers, 1 of further ones, the same for all of the scope\n",
        "    a  weight 30     excluded: not-served  192.0.2.2  ",
        "    b  weight 10     100.0 %  192.0.2.3  ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let json = serde_json::to_value(explain("10.1.8.1")).unwrap();
    assert_eq!(json["decided_by"]["override"], "10.1.8.0/24");
    assert_eq!(json["override"]["owner"], "noc");
    assert_eq!(json["override"]["expires_ms"], serde_json::Value::Null);
    assert!(explain("10.1.8.1").to_string().contains("cable cut; until somebody takes it out\n"));
    // AS 1 is served by it.
    assert!(explain("10.2.0.1").to_string().contains("    a  weight 30      75.0 %  "));
}

#[test]
fn explanation_and_plan_agree_for_everybody() {
    let (locator, steering) = world();
    for address in
        ["10.1.0.1", "10.2.0.1", "192.0.2.1", "2001:db8:1::5", "2001:db8::", "::ffff:10.1.0.1"]
    {
        let address: IpAddr = address.parse().unwrap();
        let class = steering.table().lookup(address).class;
        for project in names("videolan quiet") {
            let explained = steering.explain(&project, address, &locator).unwrap();
            for (walk, family) in explained.walks.iter().zip(BOTH) {
                let plan = steering.plan(&project, class, family).unwrap();
                assert_eq!((walk.verdict, &walk.pool), (plan.verdict, &plan.pool));
                let included: Vec<_> =
                    walk.included().map(|n| (&n.node, n.weight, n.share)).collect();
                let planned: Vec<_> = plan
                    .candidates
                    .iter()
                    .zip(plan.shares())
                    .map(|(c, (_, share))| (&c.node, c.weight, share))
                    .collect();
                assert_eq!(included, planned, "{address} {project} {family}");
            }
            // The entry named is the one whose list the class has.
            let map = &steering.map().map.maps[&explained.map];
            let list = match explained.decided_by {
                DecidedBy::Override(_) | DecidedBy::Rule(_) => panic!("there is none"),
                DecidedBy::Asn(asn) => &map.asn[&asn],
                DecidedBy::Country(country) => &map.country[&country],
                DecidedBy::Continent(continent) => &map.continent[&continent],
                DecidedBy::Default => &map.default,
            };
            assert_eq!(*list, explained.pools, "{address}");
        }
    }
}

#[test]
fn words_are_stable() {
    let words: Vec<&str> = [
        Excluded::WeightZero,
        Excluded::NoAddress,
        Excluded::NotServed,
        Excluded::Drained,
        Excluded::Down,
        Excluded::Unfit,
        Excluded::Full,
        Excluded::PoolNotReached,
        Excluded::Repeated,
    ]
    .map(Excluded::as_str)
    .to_vec();
    assert_eq!(
        words,
        [
            "weight-zero",
            "no-address",
            "not-served",
            "drained",
            "down",
            "unfit",
            "full",
            "pool-not-reached",
            "repeated"
        ]
    );
}
