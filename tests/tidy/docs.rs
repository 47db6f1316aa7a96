//! The pages for people name only what is there, and the code map names all that is there.

use std::collections::BTreeSet;
use std::fs;

use crate::{files_below, none, read, root};

/// What the path of a file of ours begins with.
const TOP: [&str; 9] =
    ["crates/", "docs/", "maps/", "tests/", "deploy/", "ansible/", ".ci/", "./", "../"];

/// The operator's manual: of each of its commands it is said what runs it.
const MANUAL: [&str; 8] = [
    "docs/install.md",
    "docs/deploy.md",
    "docs/project.md",
    "docs/sponsor.md",
    "docs/operate.md",
    "docs/incidents.md",
    "docs/tuning.md",
    "docs/compare.md",
];

/// The pages for people.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> =
        ["README.md", "SECURITY.md", "CHANGELOG.md", "NOTICE"].map(str::to_owned).into();
    for folder in ["docs", "maps", "tests", "deploy", "crates"] {
        pages.extend(files_below(folder, "md"));
    }
    pages.retain(|page| root().join(page).exists());
    assert!(pages.len() > 5, "the pages are found: {pages:?}");
    pages
}

/// A page's text without fenced blocks.
fn prose(page: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// The code spans of a text without fenced blocks.
fn code_spans(prose: &str) -> impl Iterator<Item = &str> {
    prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The targets of links to files: `](target)`.
fn link_targets(prose: &str) -> impl Iterator<Item = &str> {
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.contains(' '))
}

/// Whether a code span names a path of the repository, as opposed to a pattern or anything else.
fn is_path(span: &str) -> bool {
    TOP.iter().any(|top| span.starts_with(top))
        && !span.contains(|c: char| c.is_whitespace() || "*<>{}$|…".contains(c))
        && !span.contains("NAME")
}

/// What a page names that is not there.
fn dead_names(page: &str, text: &str) -> Vec<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let prose = prose(text);
    let spans = code_spans(&prose).filter(|span| is_path(span)).map(|span| {
        let base = if span.starts_with("./") || span.starts_with("../") { folder } else { "" };
        (span, root().join(base).join(span.trim_end_matches([':', '.', ','])))
    });
    let links = link_targets(&prose).map(|target| (target, root().join(folder).join(target)));
    let dead = spans.chain(links).filter(|(_, path)| !path.exists());
    dead.map(|(named, _)| format!("{page} names {named}, which is not there")).collect()
}

#[test]
fn pages_name_only_paths_that_exist() {
    none(pages().iter().flat_map(|page| dead_names(page, &read(page))).collect());
}

#[test]
fn a_dead_name_is_found() {
    let text = "See `docs/none.md`, `crates/model/src/lib.rs`, [us](none/x.md#a), [them](https://a.example/b), \
                `docs/*.md` and `maps/NAME.toml`.\n```\n`docs/fenced.md`\n```\n";
    assert_eq!(
        dead_names("docs/page.md", text),
        [
            "docs/page.md names docs/none.md, which is not there",
            "docs/page.md names none/x.md, which is not there",
        ]
    );
}

/// Words of a table that none of the files named above it prints.
fn unknown_words(page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let sections = page.split("\n### ").skip(1);
    for section in sections {
        let title = section.lines().next().unwrap_or_default();
        let from = section.lines().find(|line| line.starts_with("From `")).unwrap_or_default();
        let sources: String = code_spans(from).filter(|span| is_path(span)).map(read).collect();
        if sources.is_empty() {
            faults.push(format!("{title}: no line says where the words are from"));
        }
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let words = rows.filter_map(|row| row.split('`').nth(1));
        let unknown = words.filter(|word| !sources.contains(&format!("\"{word}\"")));
        faults.extend(unknown.map(|word| format!("{title}: no code prints {word}")));
    }
    faults
}

#[test]
fn stable_words_are_those_of_the_code() {
    let page = read("docs/words.md");
    assert!(page.matches("\n| `").count() > 40, "the tables are found");
    none(unknown_words(&page));
}

#[test]
fn a_word_that_no_code_prints_is_found() {
    let page = "# x\n### A\n\nFrom `crates/mirror/src/path.rs`.\n\n| `dotfile` | x |\n| `other` | x |\n### B\n";
    assert_eq!(
        unknown_words(page),
        ["A: no code prints other", "B: no line says where the words are from"]
    );
}

/// The modules of a crate: files and folders of `src`, without roots and tests.
fn modules(name: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(format!("crates/{name}/src"))).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stems = names.map(|n| n.trim_end_matches(".rs").to_owned());
    stems.filter(|stem| !["lib", "main", "tests", "testing"].contains(&stem.as_str())).collect()
}

/// Crate -> the modules its paragraph of the code map names: a paragraph begins with
/// ``- `crates/NAME` `` and names modules as `` `file.rs` `` or `` `folder/` ``.
fn code_map(page: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut map: Vec<(String, BTreeSet<String>)> = Vec::new();
    let section = page.split("## Code map").nth(1).expect("a section `## Code map`");
    let section = section.split("\n## ").next().unwrap_or_default();
    for line in section.lines() {
        if let Some(rest) = line.strip_prefix("- `crates/") {
            let name = rest.split('`').next().unwrap_or_default();
            map.push((name.to_owned(), BTreeSet::new()));
        } else if !line.starts_with(' ') {
            continue;
        }
        let Some((_, modules)) = map.last_mut() else { continue };
        let named = code_spans(line)
            .filter_map(|span| span.strip_suffix(".rs").or_else(|| span.strip_suffix('/')));
        modules.extend(named.filter(|module| !module.contains('/')).map(str::to_owned));
    }
    map
}

#[test]
fn the_code_map_names_every_module_and_no_other() {
    let map = code_map(&read("docs/ARCHITECTURE.md"));
    let mut faults = Vec::new();
    for (name, named) in &map {
        if !root().join(format!("crates/{name}/src")).exists() {
            faults.push(format!("there is no crates/{name}"));
            continue;
        }
        let there = modules(name);
        faults.extend(
            there.difference(named).map(|m| format!("crates/{name}: {m} is not in the map")),
        );
        faults.extend(named.difference(&there).map(|m| format!("crates/{name}: there is no {m}")));
    }
    let mapped: BTreeSet<_> = map.iter().map(|(name, _)| name.clone()).collect();
    let manifests = files_below("crates", "toml").into_iter();
    let crates = manifests.filter_map(|f| Some(f.strip_suffix("/Cargo.toml")?.to_owned()));
    for built in crates.filter(|c| !mapped.contains(c.trim_start_matches("crates/"))) {
        faults.push(format!("{built} is not in the map"));
    }
    none(faults);
}

#[test]
fn the_map_of_a_page_is_understood() {
    let map = code_map(
        "x\n## Code map\n\n- `crates/a`: `one.rs`,\n  then `two/`.\n- `crates/b`\n\n## Next\n- `crates/c`\n",
    );
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(map, [("a".to_owned(), names(&["one", "two"])), ("b".to_owned(), names(&[]))]);
}

/// Blocks of commands of a page without a line before them that says what runs them:
/// `<!-- run -->` (the end-to-end tests do), `<!-- run by FILE -->` or `<!-- not run: WHY -->`.
fn unmarked_commands(page: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut before = "";
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let mark = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let is_marked = mark.is_some_and(|mark| {
            let by = mark.strip_prefix("run by ");
            mark == "run"
                || mark.strip_prefix("not run: ").is_some_and(|why| !why.is_empty())
                || by.is_some_and(|file| root().join(file).is_file())
        });
        if line == "```sh" && !is_marked {
            faults.push(format!("{page}:{}: nothing says what runs these commands", number + 1));
        }
        before = line;
    }
    faults
}

#[test]
fn commands_of_the_manual_are_run_or_say_why_not() {
    none(MANUAL.iter().flat_map(|page| unmarked_commands(page, &read(page))).collect());
}

#[test]
fn a_command_that_nothing_runs_is_found() {
    let text = "<!-- run -->\n```sh\na\n```\n\n```sh\nb\n```\n<!-- run by tests/none -->\n```sh\nc\n```\n\
                <!-- not run: no network -->\n```sh\nd\n```\n<!-- not run:  -->\n```sh\ne\n```\n";
    let said = |line| format!("docs/a.md:{line}: nothing says what runs these commands");
    assert_eq!(unmarked_commands("docs/a.md", text), [said(6), said(10), said(18)]);
}

/// Metrics that a page names and the page of metrics does not have.
fn unknown_metrics(page: &str, text: &str, metrics: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split(|c| !is_part(c)).filter(|name| {
        let role = name.strip_prefix("cacheboy_").and_then(|rest| rest.split_once('_'));
        // A family is named by its beginning, with a star behind it.
        role.is_some_and(|(role, _)| ["host", "edge", "dns", "health", "master"].contains(&role))
            && !name.ends_with('_')
    });
    let unknown = names.filter(|name| !metrics.contains(&format!("`{name}`")));
    unknown.map(|name| format!("{page}: there is no metric {name}")).collect()
}

#[test]
fn the_manual_names_metrics_that_there_are() {
    let metrics = read("docs/metrics.md");
    // The playbook's variables are called so too.
    let pages = MANUAL.iter().filter(|page| **page != "docs/deploy.md");
    none(pages.flat_map(|page| unknown_metrics(page, &read(page), &metrics)).collect());
    assert_eq!(
        unknown_metrics("a", "`cacheboy_edge_x`, cacheboy_edge_way_*, `cacheboy_y`", &metrics),
        ["a: there is no metric cacheboy_edge_x"]
    );
}
