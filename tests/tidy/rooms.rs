//! Who may use whom: the code held against the table of rooms in `docs/ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;

use crate::{files_below, none, read, root};

/// Crates that a pure crate must not reach by any way: runtimes, sockets, HTTP connections.
const IMPURE: [&str; 8] =
    ["tokio", "mio", "socket2", "hyper", "hyper-util", "async-io", "sys", "rt"];
/// Names of the standard library that open sockets or read clocks.
const IMPURE_NAMES: [&str; 6] =
    ["TcpListener", "TcpStream", "UdpSocket", "UnixListener", "UnixStream", "UnixDatagram"];
/// Crates that may know TOML.
const KNOW_TOML: [&str; 2] = ["config", "nodemap"];

/// The rooms as the page has them.
struct Rooms {
    /// Layers from left to right; a crate may use what stands in layers left of its own.
    layers: Vec<Vec<String>>,
    /// Crate -> kind, from the table.
    kinds: BTreeMap<String, String>,
}

impl Rooms {
    /// Reads the line of layers (`model < nodemap locate < ...` in a fenced block) and the table
    /// whose first column is a crate and whose second is its kind.
    fn parse(page: &str) -> Self {
        let line = page.lines().find(|l| l.starts_with("model < ")).expect("the line of layers");
        let layers = line
            .split(" < ")
            .map(|layer| layer.split_whitespace().map(str::to_owned).collect())
            .collect();
        let rows = page.lines().filter(|l| l.starts_with("| `"));
        let kinds = rows.filter_map(|row| {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let name = cells.next()?.trim_matches('`').to_owned();
            Some((name, cells.next()?.to_owned()))
        });
        Self { layers, kinds: kinds.collect() }
    }

    fn layer(&self, name: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.iter().any(|n| n == name))
    }

    fn is_pure(&self, name: &str) -> bool {
        self.kinds.get(name).is_some_and(|kind| kind == "pure")
    }

    /// What is wrong with these dependencies.
    fn faults(&self, dependencies: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, uses) in dependencies {
            let Some(own) = self.layer(name) else {
                faults.push(format!("{name} has no place in the line of layers"));
                continue;
            };
            if !self.kinds.contains_key(name) {
                faults.push(format!("{name} has no row in the table of rooms"));
            }
            for used in uses.iter().filter(|used| dependencies.contains_key(*used)) {
                if self.layer(used).is_none_or(|layer| layer >= own) {
                    faults.push(format!("{name} uses {used}, which is not left of it"));
                }
            }
            if uses.contains("toml") && !KNOW_TOML.contains(&name.as_str()) {
                faults.push(format!("{name} knows TOML; only {KNOW_TOML:?} may"));
            }
        }
        let built: BTreeSet<_> = dependencies.keys().collect();
        for named in self.layers.iter().flatten().chain(self.kinds.keys()) {
            if !built.contains(named) {
                faults.push(format!("{named} is named in the page, there is no such crate"));
            }
        }
        faults
    }
}

/// The lines that `cargo tree` prints. Offline and locked: what is looked at is what was built.
fn cargo_tree(arguments: &[&str]) -> Vec<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--no-dedupe"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Crate -> its direct normal dependencies, for every crate of the workspace.
fn direct_dependencies(tree: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::<String, BTreeSet<String>>::new();
    let mut current = String::new();
    for line in tree.iter().filter(|line| !line.is_empty()) {
        let name = line[1..].split(' ').next().unwrap().to_owned();
        if line.starts_with('0') {
            current.clone_from(&name);
            all.entry(name).or_default();
        } else {
            all.entry(current.clone()).or_default().insert(name);
        }
    }
    all
}

#[test]
fn dependencies_go_left_only() {
    let rooms = Rooms::parse(&read("docs/ARCHITECTURE.md"));
    let tree = cargo_tree(&["--workspace", "--depth", "1", "--prefix", "depth"]);
    let dependencies = direct_dependencies(&tree);
    assert_eq!(
        dependencies.len(),
        files_below("crates", "toml").iter().filter(|f| f.ends_with("/Cargo.toml")).count()
    );
    none(rooms.faults(&dependencies));
}

#[test]
fn pure_crates_reach_neither_runtime_nor_sockets() {
    let rooms = Rooms::parse(&read("docs/ARCHITECTURE.md"));
    let pure: Vec<_> = rooms.kinds.keys().filter(|name| rooms.is_pure(name)).collect();
    assert!(pure.len() > 5, "the table names the pure crates: {pure:?}");
    let mut faults = Vec::new();
    for name in pure {
        for line in cargo_tree(&["--package", name, "--prefix", "none"]) {
            let reached = line.split(' ').next().unwrap_or_default();
            if IMPURE.contains(&reached) {
                faults.push(format!("{name} reaches {reached}"));
            }
        }
        for file in files_below(&format!("crates/{name}/src"), "rs") {
            let text = read(&file);
            let names = IMPURE_NAMES.iter().filter(|impure| text.contains(**impure));
            faults.extend(names.map(|impure| format!("{file} names {impure}")));
        }
    }
    none(faults);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let manifests =
        files_below("crates", "toml").into_iter().filter(|f| f.ends_with("/Cargo.toml"));
    let exempt = |file: &String| file == "crates/sys/Cargo.toml";
    let bare = manifests.filter(|f| !exempt(f) && !read(f).contains("[lints]\nworkspace = true"));
    none(bare.map(|file| format!("{file} lacks `[lints] workspace = true`")).collect());
}

/// The checks above find what they are for.
#[test]
fn a_wrong_dependency_is_found() {
    let rooms = Rooms::parse(
        "model < a b < c\n| Crate | Kind |\n| `model` | pure |\n| `a` | pure |\n| `b` | I/O |\n\
         | `c` | I/O |\n| `gone` | pure |\n",
    );
    assert!(rooms.is_pure("a") && !rooms.is_pure("b") && !rooms.is_pure("Crate"));
    let tree = [
        "0model v0.1.0 (/x)",
        "1serde v1.0",
        "",
        "0a v0.1.0 (/x)",
        "1b v0.1.0 (/x)",
        "1toml v1",
        "0b v0.1.0",
        "1model v0.1.0",
        "0c v0.1.0",
        "1a v0.1.0",
        "0new v0.1.0",
    ];
    let dependencies = direct_dependencies(&tree.map(str::to_owned));
    assert_eq!(
        rooms.faults(&dependencies),
        [
            "a uses b, which is not left of it",
            "a knows TOML; only [\"config\", \"nodemap\"] may",
            "new has no place in the line of layers",
            "gone is named in the page, there is no such crate",
        ]
    );
}
