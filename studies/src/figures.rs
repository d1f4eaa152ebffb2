//! `thc figures`: how large the error of THC is next to that of other schemes, as pictures and numbers.
//!
//! One file per figure, each made of measurements ([`measure`]), charts and a table; [`run`] puts them on a page.

pub mod arguments;
pub mod catalogue;
pub mod comparison;
pub mod distributions;
pub mod gradients;
pub mod granularity;
pub mod measure;
pub mod run;
pub mod workers;
