//! Everything that this crate draws: line charts, dot plots, several of them as one picture, and pages of figures.

mod axis;
mod chart;
mod dots;
mod figure;
mod page;

pub use axis::{Axis, Scale};
pub use chart::{BLUE, COLOURS, Chart, GREEN, GREY, Mark, ORANGE, PUBLISHED, PURPLE, RED, Series};
pub use dots::{DotPlot, Kind, Row};
pub use figure::{Figure, Picture, Table, short, tile, write};
pub use page::html;
pub use plotters::style::RGBColor;
