//! Every kept input once more, and random ones: a fault that was found stays found.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::Path;
use thc_fuzz::{Random, TARGETS};

/// Random inputs for each target.
const RANDOM: u64 = 2_000;

/// Says which input it was.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {}", self.0);
        }
    }
}

fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no inputs", folder.display());
    for file in &files {
        let named = Named(format!("the input {}", file.display()));
        (target.run)(&fs::read(file).unwrap());
        drop(named);
    }
    let kept: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for seed in 0..RANDOM {
        let named = Named(format!("the random input of seed {seed}"));
        let mut random = Random::new(seed);
        // A kept one with some bytes changed, or nothing but random bytes.
        let mut input = kept[random.number() as usize % kept.len()].clone();
        if seed % 2 == 0 {
            input.resize(random.number() as usize % target.longest + 1, 0);
            random.fill(&mut input);
        } else if !input.is_empty() {
            for _ in 0..1 + random.number() % 4 {
                let at = random.number() as usize % input.len();
                input[at] = random.number() as u8;
            }
        }
        (target.run)(&input);
        drop(named);
    }
    println!("{name}: {} kept inputs, {RANDOM} random ones", files.len());
}

macro_rules! targets {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_is_replayed() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets!(
    wire,
    aggregator,
    worker,
    sessions,
    p4runtime,
    ps_config,
    controller_config,
    npy,
    safetensors,
    table,
    feedback
);
