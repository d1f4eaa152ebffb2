//! What studies draw and print: line charts, dot plots, several of them as one picture, tables, pages of figures, and the
//! [units] in which they count.

mod axis;
mod chart;
mod dots;
mod figure;
mod page;
pub mod units;

pub use axis::{Axis, Scale};
pub use chart::{BLUE, COLOURS, Chart, GREEN, GREY, Mark, ORANGE, PUBLISHED, PURPLE, RED, Series};
pub use dots::{DotPlot, Kind, Row};
pub use figure::{Figure, Picture, Table, short, tile, write};
pub use page::html;
pub use plotters::style::RGBColor;
