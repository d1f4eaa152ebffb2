//! `thc papers`: every table and figure of the five papers that THC in Rust implements, with what this code gives for it.
//!
//! [`registry`] lists them all, one file per paper; what is measured here is a [`study`] of [`training`] with many workers in one process;
//! [`runner`] measures, keeps and takes up again; [`report`] makes the page and the document.

mod aqgb;
pub mod arguments;
mod double_quantization;
mod entry;
mod feedback;
mod lgreco;
mod registry;
mod report;
mod runner;
mod schemes;
mod slimgc;
mod study;
mod thc;
mod training;
