//! `thc figures`: how large the error of THC is next to that of other schemes, as pictures and numbers.
//!
//! One file per figure, each made of measurements ([`measure`]), charts ([`chart`], [`dots`]) and a
//! table; [`page`] puts them together.

pub mod arguments;
pub mod catalogue;
pub mod chart;
pub mod comparison;
pub mod distributions;
pub mod dots;
pub mod figure;
pub mod gradients;
pub mod granularity;
pub mod measure;
pub mod page;
pub mod progress;
pub mod run;
pub mod workers;
