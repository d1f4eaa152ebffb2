//! What studies draw and print beside thc-demo's line charts: dot plots, several charts as one picture, tables, pages of
//! figures, and the [units] in which they count.

mod dots;
mod figure;
mod page;
pub mod units;

pub use dots::{DotPlot, Kind, Row};
pub use figure::{Figure, Picture, Table, short, tile, write};
pub use page::html;
pub use thc_demo::charts::{
    Axis, BLUE, COLOURS, Chart, GREEN, GREY, Mark, ORANGE, PUBLISHED, PURPLE, RED, RGBColor, Scale, Series,
};
