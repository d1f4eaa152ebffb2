//! Each part of the project has a budget: a maximum of lines of product; so have its tests (lines) and its documentation (words).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::path::Path;

/// Each room's name, folders, and maximum of product lines. Lower the maximum, a multiple of 50, whenever a change removes lines.
const ROOMS: &[(&str, &str, usize)] = &[
    ("codec", "dataplane/codec", 6_250),
    ("protocol", "dataplane/protocol", 9_050),
    ("transport", "dataplane/transport", 5_000),
    ("dpdk", "dataplane/dpdk dataplane/dpdk-sys", 2_000),
    ("worker", "dataplane/worker", 8_350),
    ("ps", "dataplane/ps", 5_950),
    ("config", "dataplane/config", 3_200),
    ("policy", "dataplane/policy", 1_000),
    ("model server", "dataplane/model-server", 5_500),
    ("p4", "p4", 4_500),
    ("controller", "controller", 9_000),
    ("python", "python/src python/thc", 11_850),
    ("testbed", "testbed", 12_850),
    ("packaging", "packaging", 1_500),
];

/// The maximum of test lines: those of the folder `tests`, of the crates' own folders `tests`, and those inline.
const TESTS: usize = 64_900;

/// The maximum of words in `PAGES` and the pages of `docs`.
const WORDS: usize = 70_000;
const PAGES: &str = "README.md CONTRIBUTING.md CHANGELOG.md";

/// Endings of files whose lines count. In `packaging` all files do.
const ENDINGS: [&str; 9] = ["rs", "py", "p4", "proto", "pyi", "h", "c", "lua", "html"];
/// Files below folders of these names are neither product nor tests.
const NEITHER: [&str; 6] = ["benches", "examples", "generated", "target", "__pycache__", "build"];

/// Lines of product and of tests.
#[derive(Default)]
struct Lines {
    product: usize,
    tests: usize,
}

impl Lines {
    /// Adds the files below `folder`. They are tests if `are_tests` says so, or if the name of a folder or file does.
    fn add(&mut self, folder: &Path, are_tests: bool, all_files: bool) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if !name.starts_with('.') && !NEITHER.contains(&name) {
                    self.add(&path, are_tests || name == "tests", all_files);
                }
            } else if all_files
                || ENDINGS.iter().any(|ending| path.extension().is_some_and(|it| it == *ending))
            {
                let text = std::fs::read_to_string(&path).unwrap();
                let all = text.lines().count();
                let is_test = are_tests || name == "tests.rs" || name.ends_with("_tests.rs");
                let product = if is_test { 0 } else { crate::file_lengths::length(&text) };
                self.product += product;
                self.tests += all - product;
            }
        }
    }
}

/// Appends a line to the report, and returns `true` if the budget is kept.
fn report(lines: &mut String, what: &str, measured: usize, budget: usize) -> bool {
    let kept = measured <= budget;
    let mark = if kept { "" } else { "   more than its budget" };
    writeln!(lines, "{what:16} {measured:>7} of {budget:>7}{mark}").unwrap();
    kept
}

#[test]
fn every_room_keeps_its_budget() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut text = String::new();
    let mut all_kept = true;
    let mut tests = Lines::default();
    tests.add(&root.join("tests"), true, false);
    tests.add(&root.join("python/tests"), true, false);
    for &(room, folders, budget) in ROOMS {
        let mut lines = Lines::default();
        for folder in folders.split(' ') {
            let path = root.join(folder);
            assert!(
                path.is_dir(),
                "there is no folder {folder}: take it out of the room {room} in tests/tests/budgets.rs"
            );
            lines.add(&path, false, room == "packaging");
        }
        all_kept &= report(&mut text, room, lines.product, budget);
        tests.tests += lines.tests;
    }
    all_kept &= report(&mut text, "tests", tests.tests, TESTS);

    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let words = pages.chain(PAGES.split(' ').map(|page| root.join(page)));
    let words = words.map(|page| std::fs::read_to_string(page).unwrap().split_whitespace().count()).sum();
    all_kept &= report(&mut text, "words of docs", words, WORDS);
    assert!(
        all_kept,
        "remove lines or words, or raise the maximum in tests/tests/budgets.rs with a reason:\n{text}"
    );
}

/// Source that belongs to no room would grow unseen.
#[test]
fn every_folder_with_source_is_in_a_room() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let rooms: Vec<_> = ROOMS.iter().flat_map(|(_, folders, _)| folders.split(' ')).collect();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    for member in members.split(',').map(|member| member.trim().trim_matches('"')) {
        let in_room = rooms
            .iter()
            .any(|room| Path::new(member).starts_with(room) || Path::new(room).starts_with(member));
        assert!(member.is_empty() || member.starts_with("tests") || in_room, "{member} is in no room");
    }
}
