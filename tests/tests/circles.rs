//! No circles between files: in each crate of the product, a module's own file and the modules below it, each with all that is below
//! that, use one another in one direction. A name that a module passes on (`pub use`) counts as the file's that defines it, and
//! passing it on does not count; nor does what only tests use.
#![allow(clippy::unwrap_used, reason = "tests")]

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The crates of the product that have several files.
const PRODUCT: &str = "controller/thc-controller dataplane/codec dataplane/config dataplane/dpdk \
    dataplane/model-server dataplane/policy dataplane/protocol dataplane/ps \
    dataplane/transport dataplane/worker";

/// A module's path in its crate, or that of something in it.
type Name = Vec<String>;

#[derive(Default)]
struct File {
    defines: BTreeSet<String>,
    /// What `use` brings in, by its name in this file.
    imports: Vec<(String, Name)>,
    /// Those of them that are passed on.
    passed_on: BTreeSet<Name>,
    paths: Vec<Name>,
    /// Modules that only tests have.
    tests: Vec<String>,
}

/// A file's tokens as text, with `::` as one.
fn flatten(stream: TokenStream, out: &mut Vec<String>) {
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    _ => ("(", ")"),
                };
                out.push(open.to_owned());
                flatten(group.stream(), out);
                out.push(close.to_owned());
            }
            TokenTree::Punct(punct)
                if punct.as_char() == ':' && out.last().is_some_and(|last| last == ":") =>
            {
                out.last_mut().unwrap().push(':');
            }
            other => out.push(other.to_string()),
        }
    }
}

/// Reads one path of a `use`, or several in braces, and what they are called from then on; returns how many tokens that were.
fn expand(tokens: &[String], prefix: &[String], imports: &mut Vec<(String, Name)>) -> usize {
    let (mut path, mut at) = (prefix.to_vec(), 0);
    while !["{", ",", "}", ";", "as"].contains(&tokens[at].as_str()) {
        path.extend((tokens[at] != "::").then(|| tokens[at].clone()));
        at += 1;
    }
    if tokens[at] == "}" && path == prefix {
        // After a last comma.
        return at;
    }
    if tokens[at] == "{" {
        while tokens[at] != "}" {
            at += 1 + expand(&tokens[at + 1..], &path, imports);
        }
        return at + 1;
    }
    path.pop_if(|last| last == "self");
    let renamed = tokens[at] == "as";
    imports.push((
        if renamed { tokens[at + 1].clone() } else { path.last().cloned().unwrap_or_default() },
        path,
    ));
    at + if renamed { 2 } else { 0 }
}

fn read(path: &Path) -> File {
    let (mut tokens, mut file, mut at) = (Vec::new(), File::default(), 0);
    flatten(std::fs::read_to_string(path).unwrap().parse().unwrap(), &mut tokens);
    let is_word = |token: &str| token.starts_with(|first: char| first.is_alphabetic() || first == '_');
    while at + 1 < tokens.len() {
        let (token, next) = (tokens[at].as_str(), tokens[at + 1].as_str());
        if tokens[at..].iter().take(7).eq(&["#", "[", "cfg", "(", "test", ")", "]"]) {
            // An item that only tests have ends with a semicolon, or with the first braces.
            let end = at + tokens[at..].iter().position(|token| token == ";" || token == "{").unwrap();
            file.tests.extend((tokens[end - 2] == "mod").then(|| tokens[end - 1].clone()));
            let mut depth = i32::from(tokens[end] == "{");
            at = end + 1;
            while depth > 0 {
                depth += i32::from(tokens[at] == "{") - i32::from(tokens[at] == "}");
                at += 1;
            }
            continue;
        }
        if token == "use" && (is_word(next) || ["::", "{"].contains(&next)) {
            let (passed_on, before) =
                (at > 0 && ["pub", ")"].contains(&&*tokens[at - 1]), file.imports.len());
            at += 1 + expand(&tokens[at + 1..], &[], &mut file.imports);
            if passed_on {
                file.passed_on.extend(file.imports[before..].iter().map(|(_, path)| path.clone()));
            }
        } else if ["fn", "struct", "enum", "trait", "type", "const", "static"].contains(&token)
            && is_word(next)
        {
            file.defines.insert(next.to_owned());
        } else if is_word(token)
            && next == "::"
            && !(at > 1 && tokens[at - 2] == "(" && tokens[at - 1] == "in")
        {
            // Where an item can be seen from, `pub(in …)`, is no use.
            let mut path = vec![token.to_owned()];
            while tokens[at + 1] == "::" && is_word(&tokens[at + 2]) {
                path.push(tokens[at + 2].clone());
                at += 2;
            }
            file.paths.push(path);
        }
        at += 1;
    }
    file
}

/// Reads the files of a crate's library.
fn modules(folder: &Path, module: &Name, files: &mut BTreeMap<Name, File>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let below = [&module[..], std::slice::from_ref(&stem)].concat();
        if path.is_dir() && stem != "bin" {
            modules(&path, &below, files);
        } else if path.extension().is_some_and(|end| end == "rs") && path != folder.join("main.rs") {
            files.insert(if ["mod", "lib"].contains(&&*stem) { module.clone() } else { below }, read(&path));
        }
    }
}

/// A path as it is seen in a module, from the crate on, if it is of this crate.
fn absolute(files: &BTreeMap<Name, File>, module: &[String], path: &[String]) -> Option<Name> {
    let supers = path.iter().take_while(|segment| *segment == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([&module[..module.len().checked_sub(supers)?], &path[supers..]].concat()),
        first => files.contains_key(&[module, &[first.to_owned()]].concat()).then(|| [module, path].concat()),
    }
}

/// The modules that define what a path names.
fn resolve(files: &BTreeMap<Name, File>, path: &[String], depth: u8) -> BTreeSet<Name> {
    let (module, rest) =
        (0..=path.len()).rev().map(|end| path.split_at(end)).find(|(m, _)| files.contains_key(*m)).unwrap();
    let imports = files[module].imports.iter().filter(|(name, _)| {
        depth < 9 && rest.first().is_some_and(|first| first == name && !files[module].defines.contains(first))
    });
    let passed = imports.filter_map(|(_, path)| absolute(files, module, path));
    let found: BTreeSet<Name> =
        passed.flat_map(|path| resolve(files, &[&path[..], &rest[1..]].concat(), depth + 1)).collect();
    if found.is_empty() { BTreeSet::from([module.to_vec()]) } else { found }
}

/// Which children of a module, and whether it itself, are in circles or between two of them: what is left when those that use none, or
/// that none uses, are taken away again and again.
fn circles<'a>(edges: &'a BTreeSet<(Name, Name)>, parent: &[String]) -> Vec<&'a (Name, Name)> {
    let depth = parent.len();
    let below = |name: &Name| name.starts_with(parent);
    let between = |(from, to): &&(Name, Name)| below(from) && below(to) && from.get(depth) != to.get(depth);
    let (mut left, mut before): (Vec<_>, _) = (edges.iter().filter(between).collect(), usize::MAX);
    while left.len() < before {
        before = left.len();
        let (from, to): (BTreeSet<_>, BTreeSet<_>) =
            left.iter().map(|(from, to)| (from.get(depth), to.get(depth))).unzip();
        left.retain(|edge| to.contains(&edge.0.get(depth)) && from.contains(&edge.1.get(depth)));
    }
    left
}

#[test]
fn files_of_the_product_use_one_another_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for name in PRODUCT.split(' ') {
        let (mut files, mut edges) = (BTreeMap::new(), BTreeSet::new());
        modules(&root.join(name).join("src"), &Vec::new(), &mut files);
        let tests = files.iter().flat_map(|(module, file)| {
            file.tests.iter().map(|test| [&module[..], std::slice::from_ref(test)].concat())
        });
        let tests: Vec<Name> = tests.collect();
        files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        for (module, file) in &files {
            let paths = file.imports.iter().map(|(_, path)| path).chain(&file.paths);
            for (path, passed_on) in
                paths.map(|path| (absolute(&files, module, path), file.passed_on.contains(path)))
            {
                let used = path.map(|path| resolve(&files, &path, 0)).into_iter().flatten();
                let used = used.filter(|to| !(passed_on && to.starts_with(module)));
                edges.extend(used.map(|to| (module.clone(), to)));
            }
        }
        assert!(files.len() > 1, "{name}: nothing was read");
        let edges = &edges;
        let left: BTreeSet<_> = files.keys().flat_map(|parent| circles(edges, parent)).collect();
        found.extend(
            left.iter().map(|(from, to)| format!("{name}: {} uses {}", from.join("::"), to.join("::"))),
        );
    }
    assert!(found.is_empty(), "circles:\n{}", found.join("\n"));
}
