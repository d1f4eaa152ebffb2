//! What this crate adds to thc-demo's line charts: dot plots, several charts as one picture, and pages of figures.

mod dots;
mod figure;
mod page;

pub use dots::{DotPlot, Kind, Row};
pub use figure::{Figure, Picture, Table, short, tile, write};
pub use page::html;
pub use thc_demo::charts::{
    Axis, BLUE, COLOURS, Chart, GREEN, GREY, Mark, ORANGE, PUBLISHED, PURPLE, RED, RGBColor, Scale, Series,
};
