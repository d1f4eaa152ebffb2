//! Tests of whole systems: programs, hosts, switches. They are one program, so that what all of them need is linked once.
#![allow(clippy::unwrap_used, missing_docs)]

mod addresses;
mod bmv2_network;
mod bmv2_trace;
mod budgets;
mod circles;
mod controller;
mod debian;
mod doctor;
mod dpdk_processes;
mod dpdk_steering;
mod file_lengths;
mod groups;
mod help;
mod hostile;
mod ipv6;
mod kills;
mod limits;
mod monitoring;
mod namespaces;
mod output;
mod p4_build;
mod pages;
mod processes;
mod python_worker;
mod racks;
mod shares;
mod tna;
mod v1model;
mod vectors;
mod wireshark;

/// A file that no line above names would not be compiled, unless it is a program of its own.
#[test]
fn no_file_is_left_out() {
    let (source, manifest) = (include_str!("main.rs"), include_str!("../Cargo.toml"));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            source.contains(&format!("\nmod {name};")) || manifest.contains(&format!("\"tests/{name}.rs\"")),
            "{name} has no line in tests/main.rs, nor in Cargo.toml"
        );
    }
}
