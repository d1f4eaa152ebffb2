//! `thc papers`: what schemes make of the gradients of real architectures. docs/papers.md compares it with what the papers published.

mod aqgb;
pub mod arguments;
mod choice;
mod double_quantization;
mod gradients;
mod layers;
mod nmse;
mod schemes;
mod sheet;
