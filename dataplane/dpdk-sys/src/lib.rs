//! Bindings to the installed DPDK. The README explains why this crate exists.
//!
//! The crate is empty without the feature `dpdk`. Names and meanings are DPDK's, and its documentation says what
//! each function requires of its caller. `thc-dpdk` is the only user.
#![no_std]
#![cfg(feature = "dpdk")]
#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, non_snake_case)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::cast_lossless, reason = "generated")]
#![allow(unused_qualifications, clippy::semicolon_if_nothing_returned, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
