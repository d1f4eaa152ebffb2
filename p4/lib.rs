//! THC's switch program, as `make p4` has compiled it, and the rows of its tables.
#![forbid(unsafe_code)]

pub mod rows;

/// Tables, actions and counters, with their numbers: P4Info in its text form.
pub const P4INFO: &[u8] = include_bytes!("build/thc.p4info.txtpb");

/// [`P4INFO`] in its binary form, for programs that do not read the text.
pub const P4INFO_BINARY: &[u8] = include_bytes!("build/thc.p4info.bin");

/// The program as BMv2 loads it, JSON.
pub const BMV2: &[u8] = include_bytes!("build/thc.json");
