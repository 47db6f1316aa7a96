//! Everything that is shown to people is true: the sample maps load, the reference page has the
//! keys that the code has, and its examples load.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use model::Asn;
use nodemap::admin::{self, AdminMap, schema};

fn top(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn clean(read: Result<AdminMap, Vec<nodemap::Finding>>) -> AdminMap {
    read.unwrap_or_else(|findings| {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

#[test]
fn the_sample_maps_load_clean() {
    let map = clean(admin::load_dir(&top("maps")));
    let sizes = [map.sites.len(), map.nodes.len(), map.pools.len(), map.zones.len()];
    assert_eq!(sizes, [7, 8, 7, 1]);
    let waix = &map.maps["default"].asn[&Asn::new(7545).unwrap()];
    assert_eq!(waix.iter().map(|p| p.as_str()).collect::<Vec<_>>(), ["waix", "asia", "world"]);
    let videolan = &map.projects["videolan"];
    assert_eq!(videolan.masters["m1"].url, "http://master1.example:8080/vlc");
    assert_eq!(videolan.ttl_s, 60);
    assert_eq!(videolan.policy("/vlc/3.0/SHA512SUMS.asc").unwrap().ttl_s, Some(60));
    assert!(videolan.policy("/vlc/3.0/vlc.tar.xz").is_none());
    let printed = map.print();
    assert_eq!(clean(admin::load(&[(PathBuf::from("printed.toml"), printed)])), map);
}

/// The benchmarks write node maps of their own, past any admin map.
#[test]
fn the_node_map_of_the_edge_benchmark_is_one_that_readers_take() {
    let script = std::fs::read_to_string(top("tests/bench/edge-adapter.sh")).unwrap();
    let (_, rest) = script.split_once("<<JSON\n").unwrap();
    let (document, _) = rest.split_once("\nJSON\n").unwrap();
    let document = document.replace("$(date +%s%3N)", "7").replace("$origin", "127.0.0.1:8000");
    let document = document.replace("${NODE:+, $NODE}", r#", "asn": 7606"#);
    assert!(!document.contains('$'), "{document}");
    let map = nodemap::NodeMap::parse(document.as_bytes()).unwrap();
    assert_eq!(map.map.projects["bench"].masters["origin"].url, "http://127.0.0.1:8000");
}

/// With `CACHEBOY_GOLDEN=write` the tables of the page are written anew.
#[test]
fn the_reference_page_has_every_key_as_the_code_knows_it() {
    let path = top("docs/maps.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut wanted = page.clone();
    for section in schema::SECTIONS {
        let heading = format!("### `{}`\n\n", section.header);
        let (before, rest) = wanted.split_once(&heading).unwrap_or_else(|| {
            panic!("docs/maps.md has no heading {heading:?}");
        });
        let rows = rest.split_inclusive('\n').take_while(|line| line.starts_with('|'));
        let after = &rest[rows.map(str::len).sum()..];
        wanted = format!("{before}{heading}{}{after}", section.markdown());
    }
    if std::env::var("CACHEBOY_GOLDEN").is_ok_and(|v| v == "write") {
        std::fs::write(&path, &wanted).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), wanted);
}

#[test]
fn the_examples_of_the_reference_page_load_as_one_map() {
    let page = std::fs::read_to_string(top("docs/maps.md")).unwrap();
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 6, "{}", examples.len());
    let files: Vec<(PathBuf, String)> = examples
        .iter()
        .enumerate()
        .map(|(at, text)| (PathBuf::from(format!("example {}", at + 1)), (*text).to_owned()))
        .collect();
    clean(admin::load(&files));
}

/// Alone, and with the second master and the second edge that the page adds.
#[test]
fn the_maps_of_the_first_edge_load() {
    let page = std::fs::read_to_string(top("docs/first-edge.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let load = |text: &str| clean(admin::load(&[(PathBuf::from("all.toml"), text.to_owned())]));
    let first = blocks[0];
    assert_eq!(load(first).nodes.len(), 1);
    let master = blocks.iter().find(|b| b.starts_with("[project.mirror.master.m2]")).unwrap();
    let upper = blocks.iter().find(|b| b.starts_with("[pool]")).unwrap();
    let (pools, parents) = upper.split_once("\n[project.mirror]\n").unwrap();
    let second = "[node.edge2]\nsite = \"home\"\naddresses = [\"127.0.0.12\"]\n";
    let both = first
        .replace("[pool]\nall = { edge1 = 100 }\n", pools)
        .replace("query = \"drop\"\n", &format!("query = \"drop\"\n{parents}"));
    let map = load(&format!("{both}{second}{master}"));
    let project = map.projects.values().next().unwrap();
    assert_eq!(project.parents.as_ref().unwrap().as_str(), "upper");
    assert_eq!((map.nodes.len(), project.masters.len()), (2, 2));
}

#[test]
fn the_defaults_of_the_reference_page_are_those_of_the_code() {
    let default = |header: &str, key: &str| {
        let section = schema::SECTIONS.iter().find(|s| s.header == header).unwrap();
        section.keys.iter().find(|k| k.name == key).unwrap().default
    };
    assert_eq!(default("[zone.\"NAME\"]", "ttl_s"), schema::ZONE_TTL_S.to_string());
    assert_eq!(
        default("[zone.\"NAME\".soa]", "negative_ttl_s"),
        schema::NEGATIVE_TTL_S.to_string()
    );
    assert_eq!(default("[project.NAME]", "ttl_s"), schema::PROJECT_TTL_S.to_string());
    for (header, key, value) in [
        ("[node.NAME]", "port", schema::NODE_PORT.to_string()),
        ("[project.NAME]", "reload_min_age_s", schema::RELOAD_MIN_AGE_S.to_string()),
        ("[project.NAME]", "stale_while_revalidate_s", u32::default().to_string()),
        ("[project.NAME]", "completion", format!("`{}`", model::Completion::default())),
        ("[project.NAME]", "unsafe_methods", bool::default().to_string()),
        ("[project.NAME]", "http3", bool::default().to_string()),
    ] {
        assert_eq!(default(header, key), value);
    }
    let all_down = String::from(admin::AllDown::default());
    assert_eq!(default("[project.NAME]", "all_down"), format!("`{all_down}`"));
}

#[test]
fn the_recipes_for_package_repositories_load_and_match_what_they_mean() {
    let page = std::fs::read_to_string(top("docs/edge.md")).unwrap();
    let (_, rest) = page.split_once("## Index files of package repositories").unwrap();
    let (_, rest) = rest.split_once("```toml\n").unwrap();
    let recipes = rest.split("```").next().unwrap();
    let mut text = String::from(
        "[site.s]\n[node.n]\nsite = \"s\"\naddresses = [\"192.0.2.1\"]\n[pool]\np = { n = 1 }\n\
         [map.default]\ndefault = [\"p\"]\n[zone.\"cdn.example\"]\nns = [\"ns.example.net\"]\n\
         soa = { contact = \"noc.cdn.example\", negative_ttl_s = 60 }\n",
    );
    for name in ["debian", "fedora", "arch"] {
        text.push_str(&format!(
            "[project.{name}]\nname = \"{name}.cdn.example\"\nhosts = [\"{name}.example\"]\n\
             map = \"default\"\n[project.{name}.master.m]\nurl = \"http://m.example\"\n"
        ));
    }
    text.push_str(recipes);
    let map = clean(admin::load(&[(PathBuf::from("recipes.toml"), text)]));
    for (project, path, group) in [
        ("debian", "/debian/dists/stable/InRelease", true),
        ("debian", "/dists/stable/main/binary-amd64/Packages.xz", true),
        ("debian", "/debian/dists/stable/main/binary-amd64/by-hash/SHA256/ab", false),
        ("debian", "/debian/pool/main/h/hello.deb", false),
        ("fedora", "/releases/43/os/repodata/repomd.xml.asc", true),
        ("fedora", "/releases/43/os/Packages/hello.rpm", false),
        ("arch", "/core/os/x86_64/core.db", true),
        ("arch", "/core/os/x86_64/core.files.sig", true),
        ("arch", "/core/os/x86_64/hello.pkg.tar.zst", false),
    ] {
        let policy = map.projects[project].policy(path);
        assert_eq!(policy.is_some_and(|p| p.group.is_some()), group, "{project} {path}");
    }
}
