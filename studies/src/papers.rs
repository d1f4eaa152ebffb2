//! `thc papers`: every table and figure of the five papers that THC in Rust implements, with what this code gives for it.
//!
//! [`registry`] lists them all, one file per paper; what is measured here is a [`study`] of [`training`] with many workers in one process, or a
//! [`sheet`] that is computed, of [`throughput`] by the layers of real models ([`shapes`]) and of what compression [`costs`]; [`runner`] measures, keeps and takes up again; [`report`] makes the page and the document.

mod aqgb;
pub mod arguments;
mod choice;
mod costs;
mod double_quantization;
mod double_sheets;
mod entry;
mod feedback;
mod gradients;
mod layers;
mod learner;
mod lgreco;
mod lgreco_speed;
mod link;
mod registry;
mod report;
mod runner;
mod schemes;
mod shapes;
mod sheet;
mod slimgc;
mod slimgc_causes;
mod slimgc_speed;
mod sparse_loco;
mod study;
mod tensor;
mod thc;
mod thc_causes;
mod thc_speed;
mod throughput;
mod together;
mod training;
