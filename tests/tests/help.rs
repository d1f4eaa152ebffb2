//! Help of all programs: no wider than a terminal, with examples that parse; and output whose reader has gone.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output, Stdio};
use thc_config::help::WIDTH;
use thc_tests::binary;

const PROGRAMS: [&str; 7] =
    ["thc", "thc-controller", "thc-model", "thc-ps", "thc-studies", "thc-v1model", "thc-worker"];
/// Other commands in examples.
const OTHERS: [&str; 5] = ["[[job]]", "export", "mkdir", "printf", "torchrun"];

fn command(program: &str, arguments: &[String]) -> Command {
    let mut command = Command::new(binary(program));
    command.args(arguments).env("COLUMNS", "200").env("RUST_LOG", "off").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Help of a command and of all its subcommands, each with the words that ask for it.
fn pages(program: &str, path: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let Output { status, stdout, stderr } =
        command(program, &[path, &["--help".to_owned()]].concat()).output().unwrap();
    assert!(status.success(), "{program} {path:?}: {}", text(&stderr));
    let page = text(&stdout);
    let subcommands = page.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in subcommands.take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
            pages(program, &[path, &[name.to_owned()]].concat(), found);
        }
    }
    found.push((path.to_vec(), page));
}

/// The lines of a page's examples, those that end with `\` joined.
fn examples(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut continues = false;
    let examples = page.lines().skip_while(|line| !line.starts_with("Example"));
    for line in examples.skip(1).take_while(|line| line.is_empty() || line.starts_with(' ')) {
        let part = line.trim().trim_end_matches('\\');
        match lines.last_mut() {
            Some(last) if continues => *last += part,
            _ if !part.is_empty() => lines.push(part.to_owned()),
            _ => {}
        }
        continues = line.ends_with('\\');
    }
    lines
}

/// The program that an example runs, and its arguments; `None` for another command, a line of a file, and what an example is about.
fn program_of(line: &str) -> Option<(String, Vec<String>)> {
    if line.ends_with(':') || line.contains(" = ") {
        return None;
    }
    // What follows two spaces is a remark.
    let line = line.split("  ").next().unwrap();
    let mut words: Vec<String> = Vec::new();
    for (nth, part) in line.split('\'').enumerate() {
        match nth % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    let Some(at) = words.iter().position(|word| PROGRAMS.contains(&word.as_str())) else {
        assert!(OTHERS.contains(&words[0].as_str()) || words[0].contains('/'), "no command: {line}");
        return None;
    };
    let ends = |word: &String| ["&", "&&", "|"].contains(&word.as_str()) || word.starts_with('>');
    let arguments = words[at + 1..].iter().take_while(|word| !ends(word)).cloned().collect();
    Some((words[at].clone(), arguments))
}

#[test]
fn no_line_is_wider_than_a_terminal_and_all_examples_parse() {
    let mut parsed = 0;
    for program in PROGRAMS {
        let mut found = Vec::new();
        pages(program, &[], &mut found);
        for (path, page) in found {
            for line in page.lines() {
                assert!(line.chars().count() <= WIDTH, "{program} {path:?}: {line}");
            }
            for (named, mut arguments) in examples(&page).iter().filter_map(|line| program_of(line)) {
                // Flags before it are parsed, and nothing is run.
                arguments.push("--help".to_owned());
                let output = command(&named, &arguments).output().unwrap();
                let said = text(&output.stderr);
                assert!(output.status.success(), "{program} {path:?}: {named} {arguments:?}: {said}");
                parsed += 1;
            }
        }
    }
    assert!(parsed > 40, "only {parsed} examples were found");
}

#[test]
fn short_help_is_short() {
    for (program, about) in [
        ("thc", "Compressed all-reduce for training"),
        ("thc-controller", "Create and watch THC jobs"),
        ("thc-model", "THC model server"),
        ("thc-ps", "THC software parameter server"),
        ("thc-worker", "Average tensors"),
    ] {
        let output = command(program, &["-h".to_owned()]).output().unwrap();
        let page = text(&output.stdout);
        assert!(page.lines().count() <= 40 && page.contains("--help shows all"), "{program}: {page}");
        // An option or a command has one line.
        let continues = |line: &str| line.starts_with("          ") && !line.trim().starts_with("--");
        assert!(page.starts_with(about) && !page.lines().any(continues), "{program}: {page}");
    }
}

#[test]
fn variables_do_not_keep_a_manual_page_from_being_printed() {
    for (program, variable) in [
        ("thc-controller", "THC_CONTROLLER"),
        ("thc-ps", "THC_COOKIE"),
        ("thc-worker", "THC_WORKER"),
        ("thc-model", "THC_MODEL_SECRET"),
    ] {
        let words = ["--generate".to_owned(), "man".to_owned()];
        let output = command(program, &words).env(variable, "7").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(variable), "{program}: the page names {variable}");
    }
}

#[test]
fn output_whose_reader_has_gone_is_no_failure() {
    for line in [
        "thc --help",
        "thc nmse -d 4096 --trials 1 --json",
        "thc table -n 4",
        "thc-controller --generate man",
        "thc-controller run --config /dev/null --print-config",
        "thc-model --version",
        "thc-ps -h",
        "thc-worker --generate zsh",
        "thc --generate man",
        "thc-studies simulate --losses 0 --workers 2 --coordinates 8192",
        "thc-v1model --help",
        "thc-worker doctor --patience 0s",
        // Wrong flags, which are said on stderr.
        "thc frob",
        "thc-controller job list --controller nowhere",
        "thc-model --job a",
        "thc-ps --workers 2 --quorum 9 --cookie 1",
        "thc-worker --worker 0",
    ] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let usual = command(&words[0], &words[1..]).output().unwrap().status.code();
        let closed = || std::io::pipe().unwrap().1;
        let status = command(&words[0], &words[1..]).stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(status.code(), usual, "{line}: {status}");
    }
}
