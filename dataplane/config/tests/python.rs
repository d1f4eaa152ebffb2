//! `python/thc/job_options.py`, the keys of a job for people and type checkers of Python, follows from `src/job/options.rs`. The variable
//! `THC_WRITE` has this test write it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write;
use std::path::Path;

use thc_config::job::{JobOptions, Keyword, KeywordKind};

const HEAD: &str = "\
\"\"\"The keys of a job, as :class:`thc.Server` takes them.

Written by `THC_WRITE=1 cargo test -p thc-config --test python` from `dataplane/config/src/job/options.rs`.
\"\"\"

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

__all__ = [\"JobOptions\"]


class JobOptions(TypedDict, total=False):
    \"\"\"Keys of a job besides its number, its cookie and its workers. ``None`` leaves a key out.\"\"\"
";

/// Parameters of `Server` itself.
const ELSEWHERE: [&str; 3] = ["job", "cookie", "workers"];
/// Columns of a line.
const WIDTH: usize = 120;

fn annotation(keyword: &Keyword) -> String {
    let one = match keyword.kind {
        KeywordKind::Number => "int",
        KeywordKind::Secret => "int | str",
        KeywordKind::Fraction | KeywordKind::Time => "float | str",
        KeywordKind::Text => "str",
    };
    if keyword.is_list { format!("Sequence[{one}]") } else { one.to_owned() }
}

/// What a key is for, as the docstring below it.
fn docstring(help: &str) -> String {
    let mut lines = vec![String::new()];
    for word in help.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH - 10 {
            lines.push(word.to_owned());
        } else {
            let space = if line.is_empty() { "" } else { " " };
            *line += &format!("{space}{word}");
        }
    }
    format!("    \"\"\"{}\"\"\"\n", lines.join("\n    "))
}

#[test]
fn the_keys_of_python_are_those_of_a_job() {
    let mut module = HEAD.to_owned();
    for keyword in JobOptions::keywords().iter().filter(|keyword| !ELSEWHERE.contains(&&*keyword.name)) {
        assert!(!keyword.help.is_empty(), "{} is not documented", keyword.name);
        write!(module, "\n    {}: {} | None\n", keyword.name, annotation(keyword)).unwrap();
        module += &docstring(&keyword.help);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/thc/job_options.py");
    if std::env::var_os("THC_WRITE").is_some() {
        std::fs::write(&path, &module).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == module,
        "{} is old: run THC_WRITE=1 cargo test -p thc-config --test python",
        path.display()
    );
}
