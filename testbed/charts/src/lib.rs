//! What studies draw and print beside thc-demo's line charts: dot plots, several charts as one picture, tables, and the [units] in which they count.

mod dots;
mod figure;
pub mod units;

pub use dots::{DotPlot, Kind, Row};
pub use figure::{Table, short, tile, write};
pub use thc_demo::charts::{
    Axis, BLUE, COLOURS, Chart, GREEN, GREY, Mark, ORANGE, PUBLISHED, PURPLE, RED, RGBColor, Scale, Series,
};
