//! Whatever map we hold, what we print of it loads back to the same map, and the published document
//! made of it parses back to the same document.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::LazyLock;

use ipnet::IpNet;
use model::{Asn, ByteCount, Completion, Continent, CountryCode, Name, Query, Rate};
use nodemap::admin::{
    self, AdminMap, AllDown, HostPattern, KeyDigest, Master, Node, Project, ProjectTls, Site, Soa,
};
use nodemap::published::{MasterState, MasterWord, NodeMap, NodeStates, ParseError};
use nodemap::{
    Bill, Cap, Glob, MaxShare, Override, PathPolicy, RouteRule, Serve, SteeringMap, Trust, Zone,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

fn name(kind: &str, index: usize) -> Name {
    format!("{kind}{index}").parse().unwrap()
}

fn site() -> impl Strategy<Value = Site> {
    let degrees = |max: i32| (-max..=max).prop_map(|micro| f64::from(micro) / 1e6);
    let coordinates = option::of((degrees(90_000_000), degrees(180_000_000)));
    (option::of(any::<u64>()), coordinates)
        .prop_map(|(capacity, coordinates)| Site { capacity: capacity.map(Rate), coordinates })
}

fn country() -> impl Strategy<Value = CountryCode> {
    prop::sample::select(&["AU", "BR", "DE", "GB", "JP", "NZ", "US", "ZA"][..])
        .prop_map(|c| c.parse().unwrap())
}

fn asn() -> impl Strategy<Value = Asn> {
    (1..=u32::MAX).prop_map(|n| Asn::new(n).unwrap())
}

/// Node number `index`; its addresses are made of the index, so that no two nodes share one.
fn node(index: usize, sites: usize) -> impl Strategy<Value = Node> {
    let byte = u8::try_from(index).unwrap();
    let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, byte));
    let v6 = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, byte.into()));
    let addresses = prop::sample::select(vec![vec![v4], vec![v6], vec![v4, v6], vec![v6, v4]]);
    let rest = (option::of(country()), option::of(asn()), bill_and_capacity());
    let serve = (btree_set(asn(), 0..3), country()).prop_map(|(asn, country)| Serve {
        asn: asn.into_iter().collect(),
        country: vec![country],
    });
    let reach = (prop_oneof![Just(80), 1..=u16::MAX], any::<bool>(), option::of(serve));
    let known = (option::of(any::<[u8; 32]>().prop_map(KeyDigest)), any::<bool>());
    let drain = option::of(any::<String>().prop_map(|reason| format!("because {reason}")));
    let words = (option::of(any::<String>()), drain, known);
    (0..sites, addresses, rest, reach, words).prop_map(
        move |(site, addresses, (country, asn, billed), (port, admin, serve), words)| {
            let (sponsor, drain, (identity, is_guest)) = words;
            Node {
                site: name("s", site),
                country,
                asn,
                addresses,
                port,
                admin: admin.then(|| format!("http://127.0.0.1:{}", 9000 + index)),
                capacity: billed.capacity,
                bill: billed.bill,
                caps: billed.caps,
                serve,
                sponsor,
                identity,
                trust: if is_guest { Trust::Guest } else { Trust::Full },
                drain,
            }
        },
    )
}

#[derive(Clone, Debug)]
struct Billed {
    capacity: Option<Rate>,
    bill: Option<Bill>,
    caps: Vec<Cap>,
}

/// Capacity, commit and caps, of which none is above the first.
fn bill_and_capacity() -> impl Strategy<Value = Billed> {
    let bill = prop_oneof![
        (64_000..=1u64 << 40).prop_map(|rate| Bill::P95(Rate(rate))),
        (1_000_000_000..=u64::MAX).prop_map(|bytes| Bill::Monthly(ByteCount(bytes))),
        Just(Bill::Flat),
    ];
    let cap = (64_000..=1u64 << 40, btree_set(asn(), 0..3), btree_set(country(), 0..3)).prop_map(
        |(rate, asns, countries)| Cap {
            rate: Rate(rate),
            projects: Vec::new(),
            asns: asns.into_iter().collect(),
            countries: countries.into_iter().collect(),
        },
    );
    let capacity = option::of((1u64 << 40)..=u64::MAX).prop_map(|rate| rate.map(Rate));
    (capacity, option::of(bill), vec(cap, 0..3)).prop_map(|(capacity, bill, mut caps)| {
        if let [first, second] = &*caps
            && first.is_for_same(second)
        {
            caps.pop();
        }
        Billed { capacity, bill, caps }
    })
}

fn pool(nodes: usize) -> impl Strategy<Value = BTreeMap<Name, u32>> {
    btree_map((0..nodes).prop_map(|n| name("n", n)), 0..=65_535u32, 1..=nodes).prop_map(
        |mut pool| {
            if pool.values().all(|weight| *weight == 0) {
                pool.values_mut().for_each(|weight| *weight = 1);
            }
            pool
        },
    )
}

/// A map whose default list holds all pools, so that none is unused.
fn steering(pools: usize) -> impl Strategy<Value = SteeringMap> {
    let all: Vec<Name> = (0..pools).map(|p| name("p", p)).collect();
    let list = prop::sample::subsequence(all.clone(), 1..=pools).prop_shuffle();
    let continents = prop::sample::select(&Continent::ALL[..]);
    (
        Just(all).prop_shuffle(),
        btree_map(continents, list.clone(), 0..4),
        btree_map(country(), list.clone(), 0..4),
        btree_map(asn(), list.clone(), 0..4),
        vec(rule(list.clone()), 0..4),
        (vec(route_rule(list), 0..4), 0..3usize),
    )
        .prop_map(|(default, continent, country, asn, mut overrides, (mut rules, views))| {
            rules.sort_by_key(|rule| rule.origin);
            rules.dedup_by_key(|rule| rule.origin);
            // A rule's view must be believed.
            let views = if rules.is_empty() { views } else { 0 };
            let views = (0..views).map(|view| name("v", view)).collect();

            overrides.sort_by_key(|rule| rule.prefix);
            overrides.dedup_by_key(|rule| rule.prefix);
            SteeringMap { default, continent, country, asn, overrides, views, rules }
        })
}

/// A rule by a live route; its origin tells it from others.
fn route_rule(list: impl Strategy<Value = Vec<Name>>) -> impl Strategy<Value = RouteRule> {
    let community = prop_oneof![Just("65000:120"), Just("4200000000:1:2")];
    let path = prop_oneof![Just("^ 7545 * 4826 $"), Just("1,5-7 ?"), Just("* 9")];
    (
        option::of((0..3usize).prop_map(|view| name("v", view))),
        option::of(any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into())),
        option::of(community.prop_map(|tag| tag.parse().unwrap())),
        option::of(asn()),
        asn(),
        option::of(path.prop_map(|pattern| pattern.parse().unwrap())),
        list,
    )
        .prop_map(|(view, next_hop, community, neighbour, origin, as_path, pools)| {
            let origin = Some(origin);
            RouteRule { view, next_hop, community, neighbour, origin, as_path, pools }
        })
}

fn rule(list: impl Strategy<Value = Vec<Name>>) -> impl Strategy<Value = Override> {
    let expires = option::of((0..200_000_000_000u64).prop_map(|s| s * 1000));
    let v4 = (any::<u32>(), 0..=32u8)
        .prop_map(|(bits, length)| IpNet::new(Ipv4Addr::from_bits(bits).into(), length).unwrap());
    let v6 = (any::<u128>(), 1..=128u8).prop_map(|(bits, length)| {
        IpNet::new(Ipv6Addr::from_bits(bits | 1 << 127).into(), length).unwrap()
    });
    let text = || any::<String>().prop_map(|text| format!("x{text}"));
    (prop_oneof![v4, v6], list, text(), text(), expires).prop_map(
        |(prefix, pools, owner, reason, expires_ms)| Override {
            prefix: prefix.trunc(),
            pools,
            owner,
            reason,
            expires_ms,
        },
    )
}

fn zone(index: usize) -> impl Strategy<Value = Zone> {
    let apex = format!("z{index}.example");
    let below = move |label: &str| format!("{label}.{apex}").parse().unwrap();
    let address = any::<[u8; 4]>().prop_map(|[_, b, c, d]| IpAddr::V4(Ipv4Addr::new(10, b, c, d)));
    let hosts = btree_map("h[0-9]{1,2}", vec(address, 1..2), 0..3);
    let text = any::<String>().prop_filter("fits a TXT record", |t| t.len() <= 4000);
    let texts = btree_set(text, 1..3).prop_map(|texts| texts.into_iter().collect::<Vec<_>>());
    let txt = btree_map("_?t[0-9]{1,2}", texts, 0..3);
    (hosts, txt, 5..=86_400u32, 0..=10_800u32).prop_map(
        move |(hosts, txt, ttl_s, negative_ttl_s)| Zone {
            ns: vec!["ns1.example.net".parse().unwrap(), "ns2.example.net".parse().unwrap()],
            soa: Soa { contact: below("noc"), negative_ttl_s },
            ttl_s,
            hosts: hosts.into_iter().map(|(h, a)| (below(&h), a)).collect(),
            txt: txt.into_iter().map(|(t, s)| (below(&t), s)).collect(),
        },
    )
}

fn all_down(pools: usize) -> impl Strategy<Value = AllDown> {
    prop_oneof![
        Just(AllDown::LastGood),
        Just(AllDown::All),
        Just(AllDown::NoData),
        Just(AllDown::ServFail),
        (0..pools).prop_map(|p| AllDown::Pool(name("p", p))),
    ]
}

fn master() -> impl Strategy<Value = Master> {
    let url = "https?://(m[0-9]\\.example|192\\.0\\.2\\.9|\\[2001:db8::9\\])(:80[0-9]{2})?(/([a-z]|%20){1,6}){0,2}";
    let host = option::of("[a-z]{1,8}\\.example(:[1-9][0-9]{0,3})?");
    let limits = (option::of(1..=10_000u32), option::of((1_000_000..=u64::MAX).prop_map(Rate)));
    (url, host, limits).prop_map(|(url, host, (requests_max, rate))| Master {
        url,
        host,
        requests_max,
        rate,
    })
}

fn completion() -> impl Strategy<Value = Completion> {
    prop::sample::select(&Completion::ALL[..])
}

/// Patterns with all that is special in them, in TOML, or in neither.
static GLOBS: LazyLock<Vec<Glob>> = LazyLock::new(|| {
    let texts = [
        "**",
        "**/*",
        "*",
        "?",
        "a",
        "a/b",
        "**/SHA256SUMS*",
        "dists/**",
        "*.iso",
        "[a-c]/x",
        "{a,b}/*",
        "x%20y",
        "é",
        "a b",
        "\"quoted\"",
        "back\\\\slash",
        "#",
        "v[0-9]*/{In,}Release",
    ];
    texts.map(|text| text.parse().unwrap()).into()
});

/// Policies no two of which have the same glob; a group has the same `ttl_s` wherever it stands.
fn paths() -> impl Strategy<Value = Vec<PathPolicy>> {
    let glob = prop::sample::select(&GLOBS[..]);
    let seconds = option::of(0..=86_400u32);
    let policy = (glob, seconds.clone(), seconds, option::of(completion()), option::of(0..3usize));
    vec(policy, 0..4).prop_map(|policies| {
        let mut kept: Vec<PathPolicy> = Vec::new();
        for (glob, ttl_s, negative_ttl_s, completion, group) in policies {
            if kept.iter().any(|p| p.glob == glob || ["**", "**/*"].contains(&p.glob.as_str())) {
                continue;
            }
            let ttl_s = group.map_or(ttl_s, |number| Some([1, 60, 86_400][number]));
            let group = group.map(|number| name("g", number));
            kept.push(PathPolicy { glob, ttl_s, negative_ttl_s, completion, group });
        }
        kept
    })
}

fn query() -> impl Strategy<Value = Query> {
    let names = btree_set("[a-zA-Z0-9._%-]{1,6}(\\[\\])?", 1..4);
    prop_oneof![
        Just(Query::Keep),
        Just(Query::Drop),
        names.prop_map(|names| Query::Only(names.into_iter().collect())),
    ]
}

fn project(index: usize, maps: usize, pools: usize) -> impl Strategy<Value = Project> {
    let masters = btree_set(master(), 1..4);
    let share = (option::of(1..=99u32), 1..=99u32, 10..=3600u32)
        .prop_map(|(nodes, sites, window_s)| MaxShare { nodes, sites: Some(sites), window_s });
    let answers = (1..=4u32, 0..=4u32, any::<[bool; 4]>(), option::of(share));
    let steered = (all_down(pools), 5..=86_400u32, masters, any::<bool>(), answers);
    let seconds = (0..=2_592_000u32, 0..=86_400u32);
    let fields = btree_set("x-[a-z0-9_]{1,6}", 0..3);
    let parents = option::of((0..pools).prop_map(|p| name("p", p)));
    let switches = any::<[bool; 4]>();
    let above = (1..=u64::MAX).prop_map(ByteCount);
    let policy = (completion(), query(), seconds, fields, (switches, above), parents, paths());
    (steered, policy).prop_map(move |((all_down, ttl_s, masters, any_host, answers), policy)| {
        let (completion, query, seconds, fields, (switches, above), parents, paths) = policy;
        let mut hosts = vec![HostPattern::Exact(format!("h{index}.example").parse().unwrap())];
        if index == 0 && any_host {
            hosts.push(HostPattern::Any);
        }
        // Two masters of one URL and `Host` would be one.
        let mut masters: Vec<Master> = masters.into_iter().collect();
        masters.dedup_by(|a, b| (&a.url, &a.host) == (&b.url, &b.host));
        Project {
            name: format!("c{index}.z0.example").parse().unwrap(),
            hosts,
            // Every map is used: the first projects take one each.
            map: name("m", index % maps),
            ttl_s,
            all_down,
            answers: answers.0,
            answers_elsewhere: answers.1,
            sticky: answers.2[0],
            ecs: answers.2[1],
            tls: if answers.2[3] { ProjectTls::Acme } else { ProjectTls::Files },
            https_record: answers.2[2],
            max_share: answers.3,
            masters: masters.into_iter().enumerate().map(|(i, m)| (name("o", i), m)).collect(),
            completion,
            query,
            stale_while_revalidate_s: seconds.0,
            reload_min_age_s: seconds.1,
            request_fields: fields.into_iter().collect(),
            unsafe_methods: switches[0],
            http3: switches[1],
            redirect: switches[2],
            redirect_above: above,
            alternates: switches[3],
            parents,
            paths,
        }
    })
}

fn numbered<T: std::fmt::Debug, S: Strategy<Value = T>>(
    count: usize,
    make: impl Fn(usize) -> S,
) -> impl Strategy<Value = Vec<T>> {
    (0..count).map(make).collect::<Vec<_>>()
}

fn named<T>(kind: &str, values: Vec<T>) -> BTreeMap<Name, T> {
    values.into_iter().enumerate().map(|(i, value)| (name(kind, i), value)).collect()
}

/// Maps that hold all rules, with up to a few entries of each kind.
fn admin_map() -> impl Strategy<Value = AdminMap> {
    (1..4usize, 1..6usize, 1..5usize, 1..3usize, 1..3usize, 0..3usize).prop_flat_map(
        |(sites, nodes, pools, maps, zones, more_projects)| {
            (
                numbered(sites, |_| site()),
                numbered(nodes, move |i| node(i, sites)),
                numbered(pools, move |_| pool(nodes)),
                numbered(maps, move |_| steering(pools)),
                numbered(zones, zone),
                numbered(maps + more_projects, move |i| project(i, maps, pools)),
            )
                .prop_map(|(sites, nodes, pools, maps, zones, projects)| AdminMap {
                    sites: named("s", sites),
                    nodes: named("n", nodes),
                    pools: named("p", pools),
                    maps: named("m", maps),
                    zones: zones
                        .into_iter()
                        .enumerate()
                        .map(|(i, zone)| (format!("z{i}.example").parse().unwrap(), zone))
                        .collect(),
                    projects: named("x", projects),
                })
        },
    )
}

fn load(text: &str) -> Result<AdminMap, Vec<nodemap::Finding>> {
    admin::load(&[(PathBuf::from("printed.toml"), text.to_owned())])
}

/// A node map of `map` in which every node is up.
fn published(map: AdminMap) -> NodeMap {
    nodemap::testing::published(7, map)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_printed_loads_back(map in admin_map()) {
        let text = map.print();
        match load(&text) {
            Ok(read) => {
                prop_assert_eq!(&read, &map, "{}", text);
                prop_assert_eq!(read.print(), text);
                prop_assert_eq!(admin::diff(&map, &read), Vec::<String>::new());
            }
            Err(findings) => {
                let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
                prop_assert!(false, "{}\n{}", findings.join("\n"), text);
            }
        }
    }

    #[test]
    fn what_is_published_parses_back(map in admin_map()) {
        let document = published(map);
        let bytes = document.to_json();
        let read = NodeMap::parse(&bytes).unwrap();
        prop_assert_eq!(&read, &document);
        prop_assert_eq!(read.to_json(), bytes);
    }

    #[test]
    fn two_maps_differ_exactly_when_a_line_says_so(old in admin_map(), new in admin_map()) {
        prop_assert_eq!(admin::diff(&old, &new).is_empty(), old == new);
    }
}

const SMALL: &str = r#"
[site.s]
[node.n]
site = "s"
addresses = ["192.0.2.1"]
[pool]
p = { n = 1 }
[map.default]
default = ["p"]
[map.default.asn]
7545 = ["p"]
[zone."cdn.example"]
ns = ["ns1.example"]
soa = { contact = "noc.cdn.example" }
[project.x]
name = "x.cdn.example"
hosts = ["x.example"]
map = "default"
master = { m1 = { url = "http://m1.example/a/" } }
"#;

#[test]
fn a_map_prints_in_one_stable_form() {
    let expected = r#"[site.s]

[node.n]
addresses = ["192.0.2.1"]
site = "s"

[pool.p]
n = 1

[map.default]
asn.7545 = ["p"]
default = ["p"]

[zone."cdn.example"]
ns = ["ns1.example"]
soa.contact = "noc.cdn.example"
soa.negative_ttl_s = 60
ttl_s = 3600

[project.x]
all_down = "last-good"
hosts = ["x.example"]
map = "default"
master.m1.url = "http://m1.example/a"
name = "x.cdn.example"
ttl_s = 60
"#;
    assert_eq!(load(SMALL).unwrap().print(), expected);
}

#[test]
fn a_difference_is_one_line_a_change_in_words() {
    let old = load(SMALL).unwrap();
    let mut new = old.clone();
    new.sites.insert("t".parse().unwrap(), Site { capacity: Some(Rate(1_000)), coordinates: None });
    new.pools.get_mut("p").unwrap().insert("n".parse().unwrap(), 50);
    new.nodes.get_mut("n").unwrap().drain = Some("new disks".into());
    let map = new.maps.get_mut("default").unwrap();
    map.asn.clear();
    map.country.insert("AU".parse().unwrap(), vec!["p".parse().unwrap()]);
    new.projects.clear();
    assert_eq!(
        admin::diff(&old, &new),
        [
            "site.t added: capacity = \"1 kbit/s\"",
            "node.n.drain added: \"new disks\"",
            "pool.p.n changed: 1 -> 50",
            "map.default.asn.7545 removed: it was [\"p\"]",
            "map.default.country.AU added: [\"p\"]",
            "project.x removed: it had all_down = \"last-good\", hosts = [\"x.example\"], map = \
             \"default\", master.m1.url = \"http://m1.example/a\", name = \"x.cdn.example\", ttl_s = 60",
        ]
    );
}

/// The project of [`SMALL`].
fn x(document: &mut NodeMap) -> &mut Project {
    document.map.projects.get_mut("x").unwrap()
}

fn path(ttl_s: Option<u32>, group: Option<&str>) -> PathPolicy {
    PathPolicy {
        glob: "**".parse().unwrap(),
        ttl_s,
        negative_ttl_s: None,
        completion: None,
        group: group.map(|group| group.parse().unwrap()),
    }
}

#[test]
fn a_document_that_cannot_be_served_from_is_refused_with_its_reason() {
    let good = published(load(SMALL).unwrap());
    type Edit = fn(&mut NodeMap);
    let cases: [(Edit, &str); 27] = [
        (
            |d| d.format = 2,
            "node map format 2 is newer than this program reads (1): upgrade this host",
        ),
        (|d| d.format = 0, "inconsistent node map: format 0 was never written"),
        (
            |d| d.map = AdminMap::default(),
            "inconsistent node map: it has no node, so nobody could be served from it",
        ),
        (
            |d| d.map.nodes.clear(),
            "inconsistent node map: it has no node, so nobody could be served from it",
        ),
        (
            |d| d.map.zones.clear(),
            "inconsistent node map: it has no zone, so nobody could be served from it",
        ),
        (
            |d| d.map.projects.clear(),
            "inconsistent node map: it has no project, so nobody could be served from it",
        ),
        (
            |d| {
                d.map.projects.values_mut().for_each(|p| p.name = "x.cdn2.example".parse().unwrap())
            },
            "inconsistent node map: project.x.name: x.cdn2.example lies in none of its zones",
        ),
        (
            |d| d.map.projects.values_mut().for_each(|p| p.ttl_s = u32::MAX),
            "inconsistent node map: project.x.ttl_s is 4294967295, more than 86400",
        ),
        (
            |d| x(d).reload_min_age_s = 86_401,
            "inconsistent node map: project.x.reload_min_age_s is 86401, more than 86400",
        ),
        (
            |d| x(d).paths = vec![path(Some(31_536_001), None)],
            "inconsistent node map: project.x.path.ttl_s is 31536001, more than 31536000",
        ),
        (
            |d| x(d).paths = vec![path(None, Some("g"))],
            "inconsistent node map: project.x.path \"**\" has a group and no ttl_s",
        ),
        (
            |d| x(d).request_fields = vec!["cookie".into()],
            "inconsistent node map: project.x.request_fields: one is a field that edges set or take out \
             themselves",
        ),
        (
            |d| d.map.zones.values_mut().for_each(|z| z.ttl_s = 86_401),
            "inconsistent node map: zone.cdn.example.ttl_s is 86401, more than 86400",
        ),
        (
            |d| d.map.zones.values_mut().for_each(|z| z.soa.negative_ttl_s = 1 << 31),
            "inconsistent node map: zone.cdn.example.soa.negative_ttl_s is 2147483648, more than 10800",
        ),
        (
            |d| d.map.pools.values_mut().for_each(|p| p.values_mut().for_each(|w| *w = 65_536)),
            "inconsistent node map: pool.p.n is 65536, more than 65535",
        ),
        (
            |d| d.map.zones.values_mut().for_each(|z| z.ns.clear()),
            "inconsistent node map: zone.cdn.example has no name servers",
        ),
        (|d| d.map.sites.clear(), "inconsistent node map: node.n.site: there is no site s"),
        (|d| d.map.maps.clear(), "inconsistent node map: project.x.map: there is no map default"),
        (|d| d.map.pools.clear(), "inconsistent node map: map.default.default: there is no pool p"),
        (
            |d| d.map.maps.values_mut().for_each(|m| m.default.clear()),
            "inconsistent node map: map.default has an empty list of pools",
        ),
        (
            |d| d.map.projects.values_mut().for_each(|p| p.masters.clear()),
            "inconsistent node map: project.x has no masters",
        ),
        (|d| d.states.clear(), "inconsistent node map: node n has v4 addresses, but no v4 state"),
        (
            |d| drop(d.states.insert("m".parse().unwrap(), NodeStates::default())),
            "inconsistent node map: there is a state of node m, but no such node",
        ),
        (
            |d| d.states.values_mut().for_each(|s| s.v4.as_mut().unwrap().permille = 1001),
            "inconsistent node map: node n has more than its whole weight",
        ),
        (
            |d| drop(d.unfit.insert("y".parse().unwrap(), Default::default())),
            "inconsistent node map: nodes are unfit for project y, but no such project",
        ),
        (
            |d| {
                let nodes = [("m".parse().unwrap(), NodeStates::default())].into();
                drop(d.unfit.insert("x".parse().unwrap(), nodes));
            },
            "inconsistent node map: node m is unfit for project x, but no such node",
        ),
        (
            |d| {
                let state = MasterWord::Down;
                let down = MasterState { state, reason: "refused".into(), since_ms: 1 };
                drop(
                    d.masters.insert("x".parse().unwrap(), [("m9".parse().unwrap(), down)].into()),
                );
            },
            "inconsistent node map: there is a state of master x/m9, but no such master",
        ),
    ];
    for (edit, expected) in cases {
        let mut document = good.clone();
        edit(&mut document);
        let refused = NodeMap::parse(&document.to_json()).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    assert!(matches!(NodeMap::parse(b"{}"), Err(ParseError::Json(_))));
    assert!(matches!(NodeMap::parse(b""), Err(ParseError::Json(_))));
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let good = published(load(SMALL).unwrap());
    let mut document: serde_json::Value = serde_json::from_slice(&good.to_json()).unwrap();
    document["signature_hint"] = "later".into();
    document["map"]["nodes"]["n"]["trust"] = "full".into();
    document["states"]["n"]["v4"]["load"] = 3.into();
    assert_eq!(NodeMap::parse(document.to_string().as_bytes()).unwrap(), good);
}

#[test]
fn documents_of_earlier_versions_are_read_with_defaults() {
    let earlier = r#"{
        "format": 1, "generation": 7, "publisher": "health1",
        "map": {
            "sites": { "s": {} },
            "nodes": { "n": { "site": "s", "addresses": ["192.0.2.1"] } },
            "pools": { "p": { "n": 1 } },
            "maps": { "default": { "default": ["p"], "asn": { "7545": ["p"] } } },
            "zones": {
                "cdn.example": {
                    "ns": ["ns1.example"],
                    "soa": { "contact": "noc.cdn.example", "negative_ttl_s": 60 },
                    "ttl_s": 3600
                }
            },
            "projects": {
                "x": {
                    "name": "x.cdn.example", "hosts": ["x.example"], "map": "default", "ttl_s": 60,
                    "all_down": "last-good", "masters": { "m1": { "url": "http://m1.example/a" } }
                }
            }
        },
        "states": { "n": { "v4": { "state": "up", "reason": "probe ok", "since_ms": 1 } } }
    }"#;
    let read = NodeMap::parse(earlier.as_bytes()).unwrap();
    assert_eq!(read, published(load(SMALL).unwrap()));
    let project = &read.map.projects["x"];
    assert_eq!((project.reload_min_age_s, project.completion), (60, Completion::Popular));
    assert_eq!(read.map.nodes["n"].port, 80);
}
