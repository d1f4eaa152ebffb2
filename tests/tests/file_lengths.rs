//! No file is longer than a reader holds at once: 400 lines without its tests.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

/// Lines of a file at most, without its tests.
const MOST: usize = 400;

/// What is longer, and why.
const EXCEPTIONS: [(&str, &str); 1] = [(
    "testbed/wireshark/thc.lua",
    "Wireshark takes a dissector as one file, which users copy to where it looks",
)];

/// Where sources lie that are no tests, and what in there counts for nothing.
const SOURCES: &str = "controller dataplane p4 python testbed";
const ENDINGS: [&str; 8] = ["rs", "py", "pyi", "p4", "proto", "lua", "c", "h"];
const LEFT_OUT: [&str; 6] = ["tests", "build", "generated", "target", "__pycache__", "node_modules"];

/// Lines of a file without those of modules and items that only tests have.
pub(crate) fn length(text: &str) -> usize {
    let (mut lines, mut count) = (text.lines(), 0);
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("#[cfg(test)]") {
            count += 1;
            continue;
        }
        // An item ends on its first line, or with a brace as far to the right as it begins.
        let indent = line.len() - line.trim_start().len();
        let first = lines.by_ref().find(|line| !line.trim_start().starts_with("#["));
        if first.is_some_and(|line| line.ends_with('{')) {
            lines.by_ref().find(|line| line.trim() == "}" && line.len() == indent + 1);
        }
    }
    count
}

/// Visits the files below a folder, and returns how many there are.
fn visit(folder: &Path, found: &mut Vec<(String, usize)>) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            let skipped = name.starts_with('.') || LEFT_OUT.contains(&name) || name.ends_with(".egg-info");
            files += if skipped { 0 } else { visit(&path, found) };
        } else if path.extension().is_some_and(|end| ENDINGS.iter().any(|wanted| end == *wanted))
            && !(name == "tests.rs" || name.ends_with("_tests.rs"))
        {
            files += 1;
            let length = length(&std::fs::read_to_string(&path).unwrap());
            if length > MOST {
                found.push((path.to_str().unwrap().to_owned(), length));
            }
        }
    }
    files
}

#[test]
fn no_file_is_too_long_for_a_reader() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for folder in SOURCES.split(' ') {
        assert!(visit(&root.join(folder), &mut found) > 0, "{folder} has no source");
    }
    let known = |file: &str| EXCEPTIONS.iter().any(|(exception, _)| file.ends_with(exception));
    let long: Vec<_> = found.iter().filter(|(file, _)| !known(file)).collect();
    assert!(long.is_empty(), "longer than {MOST} lines without tests, split them by what they do: {long:?}");
    for (exception, _) in EXCEPTIONS {
        assert!(
            found.iter().any(|(file, _)| file.ends_with(exception)),
            "{exception} is an exception no more"
        );
    }
}

#[test]
fn tests_do_not_count() {
    let text = "fn a() {\n}\n\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() {\n    }\n}\n#[cfg(test)]\nmod more;\nfn c() {}\n";
    assert_eq!(length(text), 4);
}
