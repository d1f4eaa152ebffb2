//! `thc adapt`: which compression each layer gets, from gradients or a profile (L-GreCo).

mod arguments;
mod profile;
mod report;

pub use arguments::AdaptArgs;
