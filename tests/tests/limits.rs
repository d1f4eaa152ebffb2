//! What a reader can hold at once: no function of the product is longer than 80 lines, no struct has more than 15 fields, and a
//! trait has two implementations.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use syn::visit::{self, Visit};

/// Lines of a function, and fields of a struct, at most.
const LINES: usize = 80;
const FIELDS: usize = 15;

/// Where the product lies, and what in there is none of it.
const PRODUCT: &str = "controller dataplane p4 python/src testbed";
const LEFT_OUT: [&str; 6] = ["tests", "benches", "examples", "build", "generated", "target"];

/// Structs that have more fields, and why.
const WIDE: &[(&str, &str)] = &[
    (
        "controller/thc-controller/src/config/options.rs: TargetOptions",
        "the keys of a section as they are typed",
    ),
    ("dataplane/config/src/server/options.rs: ServerOptions", "the keys of a section as they are typed"),
    ("dataplane/config/src/job/options.rs: JobOptions", "the keys of a section as they are typed"),
    ("dataplane/worker/src/cli/options/keys.rs: Keys", "the keys of a file as they are typed"),
    ("python/src/keys.rs: Keys", "the keys of a file as they are typed"),
    ("dataplane/protocol/src/wire/welcome.rs: Welcome", "the fields of a packet"),
    (
        "dataplane/protocol/src/worker/parameters.rs: Parameters",
        "the fields of a WELCOME, and what a worker adds",
    ),
    ("testbed/demo/src/demo/report.rs: Report", "the fields of a JSON object"),
    ("testbed/v1model/src/program.rs: Program", "the parts of a program as p4c writes them"),
];

/// Functions that are longer, and why.
const LONG: &[(&str, &str)] = &[];

/// Traits with one implementation, and why.
const SINGLE: &[(&str, &str)] = &[
    ("dataplane/protocol/src/worker/mod.rs: Events", "tests and fuzzers have the others"),
    ("dataplane/ps/src/exchange.rs: PacketHandler", "tests and benches have the others"),
    ("dataplane/worker/src/engine/loan.rs: Loan", "whatever can be read and sent has it"),
];

#[derive(Default)]
struct Found {
    file: String,
    wide: Vec<(String, usize)>,
    long: Vec<(String, usize)>,
    /// Where each trait is declared, and how many implementations it has.
    traits: BTreeMap<String, String>,
    implementations: BTreeMap<String, usize>,
}

impl Found {
    fn place(&self, name: impl std::fmt::Display) -> String {
        format!("{}: {name}", self.file)
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let lines = block.brace_token.span.close().end().line + 1 - first;
        if lines > LINES {
            self.long.push((self.place(&signature.ident), lines));
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let of_tests = || attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"));
        attribute.path().is_ident("test") || attribute.path().is_ident("cfg") && of_tests()
    })
}

impl<'a> Visit<'a> for Found {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        if item.fields.len() > FIELDS {
            self.wide.push((self.place(&item.ident), item.fields.len()));
        }
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.traits.insert(item.ident.to_string(), self.place(&item.ident));
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if let Some((_, path, _)) = &item.trait_ {
            let name = path.segments.last().unwrap().ident.to_string();
            *self.implementations.entry(name).or_default() += 1;
        }
        visit::visit_item_impl(self, item);
    }
}

fn read(folder: &Path, root: &Path, found: &mut Found) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !name.starts_with('.') && !LEFT_OUT.contains(&name) {
                read(&path, root, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
            found.visit_file(&file);
        }
    }
}

fn check(what: &str, found: &[(String, usize)], exceptions: &[(&str, &str)]) {
    let known = |place: &String| exceptions.iter().any(|(exception, _)| place == exception);
    let wrong: Vec<_> = found.iter().filter(|(place, _)| !known(place)).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:#?}");
    for (exception, _) in exceptions {
        assert!(found.iter().any(|(place, _)| place == exception), "{exception} is an exception no more");
    }
}

fn product() -> Found {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Found::default();
    PRODUCT.split(' ').for_each(|folder| read(&root.join(folder), root, &mut found));
    found
}

#[test]
fn functions_and_structs_can_be_read_at_once() {
    let found = product();
    check(&format!("functions of more than {LINES} lines"), &found.long, LONG);
    check(&format!("structs of more than {FIELDS} fields"), &found.wide, WIDE);
}

#[test]
fn traits_have_two_implementations() {
    let found = product();
    let single = found.traits.iter().filter_map(|(name, place)| {
        let count = found.implementations.get(name).copied().unwrap_or(0);
        (count < 2).then(|| (place.clone(), count))
    });
    check("traits with one implementation, or none", &single.collect::<Vec<_>>(), SINGLE);
}
