//! Feeds one target, named by `THC_FUZZ`, with libFuzzer; its flags are libFuzzer's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static RUN: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("THC_FUZZ").unwrap_or_default();
        let Some(target) = thc_fuzz::TARGETS.iter().find(|target| target.name == name) else {
            let names: Vec<_> = thc_fuzz::TARGETS.iter().map(|target| target.name).collect();
            eprintln!("thc-fuzz: THC_FUZZ={name:?} is no target: use one of {}", names.join(", "));
            std::process::exit(2);
        };
        RUN.get_or_init(|| target.run);
    },
    |data: &[u8]| {
        if let Some(run) = RUN.get() {
            run(data);
        }
    }
);
