//! Line charts as SVG: what `thc demo --plot` draws, and what thc-studies builds its pictures from.

mod axis;
mod chart;

pub use axis::{Axis, Scale};
pub use chart::{
    Area, BLUE, COLOURS, Chart, Drawn, GREEN, GREY, Mark, ORANGE, PUBLISHED, PURPLE, RED, Series, draw_title,
    font, mark, render,
};
pub use plotters::style::RGBColor;
