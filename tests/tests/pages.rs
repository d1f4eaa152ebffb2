//! Commands in the blocks of the README and of all pages: flags and targets that are there; and the README's first steps, run as printed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use thc_tests::built_in;

const PROGRAMS: [&str; 8] =
    ["thc", "thc-controller", "thc-model", "thc-ps", "thc-soak", "thc-studies", "thc-v1model", "thc-worker"];

/// What the blocks call that runs as it is.
const REAL: [&str; 3] = ["cat", "mkdir", "mktemp"];

/// In place of a program of this project, whose flags are parsed, and nothing is run: `…` stands for more of them.
const PROGRAM: &str = r#"#!/bin/bash
words=()
for word; do [ "$word" = … ] || words+=("$word"); done
echo "${0##*/} $*" >>"$CALLS"
said=$("$BUILT/${0##*/}" "${words[@]}" --help 2>&1 </dev/null) || echo "${0##*/} $*: $said" >>"$FAILURES"
"#;

/// What runs before a block: other commands do nothing, but for those that run another one, `make`, and Python's.
const PROLOGUE: &str = r#"
command_not_found_handle() {
    case $1 in
    sudo | taskset | numactl | ip)
        while [ $# -gt 1 ]; do
            shift
            case $1 in thc | thc-*) "$@"; return ;; esac
        done
        ;;
    make)
        "$MAKE" --dry-run -C "$TOP" "${@:2}" >/dev/null 2>&1 || echo "$*: no such target" >>"$FAILURES"
        ;;
    python* | torchrun)
        for word; do
            case $word in */*.py) [ -e "$TOP/$word" ] || echo "$*: no $word" >>"$FAILURES" ;; esac
        done
        ;;
    esac
}
"#;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(top().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> =
        docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.extend(["README.md", "CONTRIBUTING.md", "python/README.md"].map(|page| top().join(page)));
    pages.sort();
    pages
}

/// The blocks of commands, as a shell takes them: of `console`, what follows `$`.
fn blocks(page: &str) -> Vec<String> {
    let of = |(language, text): (&str, &str)| match language {
        "sh" => Some(text.to_owned()),
        "console" => {
            let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
            Some(lines.map(|line| format!("{line}\n")).collect())
        }
        _ => None,
    };
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).filter_map(of).collect()
}

#[test]
fn commands_of_all_pages_parse() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (stubs, failures, calls) = (path("stubs"), path("failures"), path("calls"));
    let find = |name: &str| {
        ["/bin", "/usr/bin"].iter().map(|bin| Path::new(bin).join(name)).find(|file| file.exists())
    };
    for bin in [&stubs, &path("target/release")] {
        fs::create_dir_all(bin).unwrap();
        for program in PROGRAMS {
            fs::write(bin.join(program), PROGRAM).unwrap();
            fs::set_permissions(bin.join(program), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    for name in REAL {
        std::os::unix::fs::symlink(find(name).unwrap(), stubs.join(name)).unwrap();
    }
    let mut count = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap()) {
            let mut command = Command::new("/bin/bash");
            command.args(["-c", &format!("{PROLOGUE}\n{block}\nwait")]).current_dir(folder.path());
            command.env_clear().env("PATH", &stubs).env("STUBS", &stubs).env("HOME", folder.path());
            command
                .env("BUILT", built_in())
                .env("TOP", top())
                .env("FAILURES", &failures)
                .env("CALLS", &calls);
            command.env("TMPDIR", folder.path()).env("MAKE", find("make").unwrap_or("/bin/true".into()));
            // What is not there, such as a file of an earlier block, is said on stderr.
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            let failed = fs::read_to_string(&failures).unwrap_or_default();
            assert!(failed.is_empty(), "{}: {failed}in the block\n{block}", page.display());
        }
        count = fs::read_to_string(&calls).map_or(0, |calls| calls.lines().count());
    }
    assert!(count > 70, "only {count} commands were found");
}

/// The commands of the README, with fewer coordinates, on a loopback interface of their own, whose port 9000 is free.
#[test]
fn first_steps_of_the_readme_work_as_printed() {
    let readme = include_str!("../../README.md");
    let (_, steps) = readme.split_once("## First steps by hand").unwrap();
    let (block, _) = steps.split_once("```sh\n").unwrap().1.split_once("```").unwrap();
    let others = ["cargo build --release", "cd target/release", "./thc bench local"];
    let is_other = |line: &&str| others.iter().any(|other| line.starts_with(other));
    let commands: Vec<&str> = block.lines().filter(|line| !is_other(line)).collect();
    let script =
        format!("ip link set lo up || exit 77\n{}\nwait", commands.join("\n").replace("16Mi", "64Ki"));
    let mut command = Command::new("unshare");
    command.args(["-rn", "bash", "-c", &script]).current_dir(built_in()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || errors.contains("unshare failed") {
        println!("not run: no network namespace: {errors}");
        return;
    }
    for worker in [0, 1] {
        let line = format!("worker {worker}: 65536 coordinates averaged over 2 workers, 10 times");
        assert!(said.contains(&line), "{line}: {said}{errors}");
    }
    assert!(said.contains("ready 127.0.0.1:9000") && said.contains("job 1"), "{said}{errors}");
}
