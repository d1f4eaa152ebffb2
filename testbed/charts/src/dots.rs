//! Dot plots: one row per scheme, one mark per measurement, on a logarithmic axis.

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{PathElement, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, RGBColor, TRANSPARENT, WHITE};

use crate::figure::short;
use thc_demo::charts::{Axis, Drawn, Mark, draw_title, font, mark, render};
use thc_demo::error::Result;

/// One kind of measurement.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Name in the legend.
    pub name: String,
    /// Its mark.
    pub mark: Mark,
    /// Its colour.
    pub color: RGBColor,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name at the left.
    pub name: String,
    /// A second, smaller text below it.
    pub detail: String,
    /// One value for each kind, where there is one.
    pub values: Vec<Option<f64>>,
}

/// A dot plot.
#[derive(Clone, Debug)]
pub struct DotPlot {
    /// Title.
    pub title: String,
    /// A second line, smaller.
    pub subtitle: String,
    /// The axis of all values.
    pub axis: Axis,
    /// Kinds of measurements, the first on top. Numbers are written next to that.
    pub kinds: Vec<Kind>,
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
}

const ROW: u32 = 38;
const NAMES: u32 = 216;
/// Height of a line of the legend, and how many there is room for.
const LINE: u32 = 22;
const LINES: u32 = 2;

impl DotPlot {
    /// Pixels that all rows need.
    pub fn height(&self) -> u32 {
        62 + LINE * LINES + 60 + ROW * self.rows.len() as u32
    }

    /// The plot as an SVG document `width` pixels wide. `name` is for errors.
    pub fn svg(&self, name: &str, width: u32) -> Result<String> {
        render(name, (width, self.height()), |backend| self.draw(backend))
    }

    fn draw(&self, backend: SVGBackend<'_>) -> Drawn {
        let root = backend.into_drawing_area();
        root.fill(&WHITE)?;
        let below = draw_title(&root, &self.title, &self.subtitle)?;
        // Names of kinds, in lines. Without font metrics: letters are about half as wide as high.
        let spot = |kind: &Kind| 36 + kind.name.chars().count() as i32 * 8;
        let (mut x, mut y) = (8, 8);
        let right = below.dim_in_pixel().0 as i32;
        for kind in &self.kinds {
            if x + spot(kind) > right {
                (x, y) = (8, y + LINE as i32);
            }
            mark(&below, kind.mark, (x + 6, y), 5, kind.color)?;
            let style = font(14, BLACK).pos(Pos::new(HPos::Left, VPos::Center));
            below.draw(&Text::new(kind.name.clone(), (x + 18, y + 1), style))?;
            x += spot(kind);
        }
        let (_, below) = below.split_vertically(LINE * LINES);
        let rows = self.rows.len() as f64;
        let mut chart = ChartBuilder::on(&below)
            .x_label_area_size(48)
            .y_label_area_size(NAMES)
            .margin_right(20)
            .build_cartesian_2d(self.axis.clone(), 0.0..rows)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.13))
            .x_desc(self.axis.label.as_str())
            .axis_desc_style(font(16, BLACK))
            .label_style(font(14, BLACK))
            .draw()?;
        for (i, row) in self.rows.iter().enumerate() {
            let at = |v: f64| chart.backend_coord(&(v, rows - i as f64 - 0.5));
            let (left, y) = at(self.axis.range.0);
            let right = at(self.axis.range.1).0;
            let name = font(15, BLACK).pos(Pos::new(HPos::Right, VPos::Center));
            let detail = font(12, RGBColor(100, 100, 100)).pos(Pos::new(HPos::Right, VPos::Center));
            root.draw(&Text::new(row.name.clone(), (left - 10, y - 7), name))?;
            root.draw(&Text::new(row.detail.clone(), (left - 10, y + 9), detail))?;
            root.draw(&PathElement::new([(left, y), (right, y)], BLACK.mix(0.10).stroke_width(1)))?;
            let shown = |v: &f64| self.axis.shows(*v);
            for (value, kind) in row.values.iter().zip(&self.kinds).rev() {
                if let Some(value) = value.filter(shown) {
                    mark(&root, kind.mark, at(value), 5, kind.color)?;
                }
            }
            if let Some(value) = row.values.first().copied().flatten().filter(shown) {
                let (x, y) = at(value);
                let style = font(12, self.kinds[0].color).pos(Pos::new(HPos::Center, VPos::Bottom));
                root.draw(&Text::new(short(value), (x, y - 7), style))?;
            }
        }
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_row_and_kind_is_named_and_marked() {
        let kind = |name: &str, mark| Kind { name: name.to_owned(), mark, color: BLACK };
        let row = |name: &str, values| Row { name: name.to_owned(), detail: "4 up".to_owned(), values };
        let plot = DotPlot {
            title: "T".to_owned(),
            subtitle: "S".to_owned(),
            axis: Axis::log("NMSE", [0.01, 10.0].into_iter()),
            kinds: vec![kind("ours", Mark::Circle), kind("theirs", Mark::Star)],
            rows: vec![row("a", vec![Some(0.02), Some(7.0)]), row("b", vec![Some(0.0), None])],
        };
        let svg = plot.svg("p", 700).unwrap();
        for text in ["ours", "theirs", "NMSE", "0.0200", ">\na\n<", ">\nb\n<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // A circle and a star in the legend and in the first row.
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polygon").count()), (2, 2));
    }
}
