//! Line charts with named lines.

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, IntoFont, RGBColor, ShapeStyle, TRANSPARENT, TextStyle, WHITE};

use super::axis::Axis;
use crate::error::{Error, Result};

/// Where something is drawn, by pixels.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What drawing gives: nothing, or why it failed.
pub type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Blue.
pub const BLUE: RGBColor = RGBColor(30, 120, 200);
/// Red.
pub const RED: RGBColor = RGBColor(200, 60, 20);
/// Green.
pub const GREEN: RGBColor = RGBColor(20, 150, 60);
/// Purple.
pub const PURPLE: RGBColor = RGBColor(120, 60, 180);
/// Orange.
pub const ORANGE: RGBColor = RGBColor(220, 140, 0);
/// Colours of lines that are told apart by nothing else.
pub const COLOURS: [RGBColor; 8] =
    [BLUE, RED, GREEN, PURPLE, ORANGE, RGBColor(90, 180, 190), RGBColor(200, 60, 140), RGBColor(40, 40, 40)];
/// Colour of what others are compared with.
pub const GREY: RGBColor = RGBColor(120, 120, 120);
/// Colour of values that others published.
pub const PUBLISHED: RGBColor = RGBColor(20, 20, 20);

/// How far in pixels a line may end from the edge to be connected with its name.
const NEAR: i32 = 80;

/// The shape of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A filled circle.
    Circle,
    /// A circle's outline.
    Hollow,
    /// A filled triangle.
    Triangle,
    /// A filled square.
    Square,
    /// A filled square on its corner.
    Diamond,
    /// A star with five points, for published values.
    Star,
}

/// One line, or points alone.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name next to it; none is named elsewhere.
    pub name: String,
    /// Colour.
    pub color: RGBColor,
    /// Shape of its points; none draws the line alone.
    pub mark: Option<Mark>,
    /// A dashed line.
    pub dashed: bool,
    /// Whether points are connected.
    pub line: bool,
    /// (x, y), in the order of the line.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// A second line, smaller.
    pub subtitle: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Lines, the last on top.
    pub series: Vec<Series>,
    /// Short texts next to points (x, y).
    pub notes: Vec<(f64, f64, String)>,
    /// Width of the column of names, in pixels.
    pub names: u32,
}

/// Text in the charts' font, `size` in pixels.
pub fn font(size: u32, color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color)
}

/// Draws a mark with its centre at a pixel.
pub fn mark(area: &Area<'_>, shape: Mark, at: (i32, i32), size: i32, color: RGBColor) -> Drawn {
    let (x, y) = at;
    let corners = |points: &[(i32, i32)]| Polygon::new(points.to_vec(), color.filled());
    match shape {
        Mark::Circle => area.draw(&Circle::new(at, size, color.filled()))?,
        Mark::Hollow => {
            area.draw(&Circle::new(at, size + 1, ShapeStyle::from(color).stroke_width(2)))?;
        }
        Mark::Square => {
            let s = size;
            area.draw(&corners(&[(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]))?;
        }
        Mark::Diamond => {
            let s = size + 2;
            area.draw(&corners(&[(x, y - s), (x + s, y), (x, y + s), (x - s, y)]))?;
        }
        Mark::Triangle => {
            let s = size + 2;
            area.draw(&corners(&[(x, y - s), (x + s, y + s - 1), (x - s, y + s - 1)]))?;
        }
        Mark::Star => {
            let point = |i: i32| {
                let radius = f64::from(size) * if i % 2 == 0 { 2.2 } else { 0.9 };
                let angle = std::f64::consts::PI * (f64::from(i) / 5.0 - 0.5);
                (x + (radius * angle.cos()).round() as i32, y + (radius * angle.sin()).round() as i32)
            };
            area.draw(&corners(&(0..10).map(point).collect::<Vec<_>>()))?;
        }
    }
    Ok(())
}

/// Draws an SVG document of the given size in pixels. `name` is for errors.
pub fn render(name: &str, size: (u32, u32), draw: impl FnOnce(SVGBackend<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    draw(SVGBackend::with_string(&mut svg, size))
        .map_err(|reason| Error::Plot { path: format!("{name}.svg").into(), reason: reason.to_string() })?;
    Ok(svg)
}

/// Title and subtitle at the top of an area; returns what is left.
pub fn draw_title<'a>(
    area: &Area<'a>,
    title: &str,
    subtitle: &str,
) -> std::result::Result<Area<'a>, Box<dyn std::error::Error>> {
    area.draw(&Text::new(title.to_owned(), (14, 12), font(19, BLACK)))?;
    area.draw(&Text::new(subtitle.to_owned(), (14, 38), font(14, RGBColor(90, 90, 90))))?;
    Ok(area.margin(62, 6, 8, 8))
}

/// Moves heights apart that are closer than `gap`, keeping their order and staying in `range`.
fn spread(heights: &mut [i32], gap: i32, range: (i32, i32)) {
    for i in 1..heights.len() {
        heights[i] = heights[i].max(heights[i - 1] + gap);
    }
    let mut limit = range.1;
    for height in heights.iter_mut().rev() {
        *height = (*height).min(limit);
        limit = *height - gap;
    }
}

impl Series {
    /// A line without marks; other looks are fields of it.
    pub fn new(name: impl Into<String>, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), color, mark: None, dashed: false, line: true, points }
    }

    /// Marks without a line.
    pub fn dots(name: impl Into<String>, color: RGBColor, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Some(mark), line: false, ..Self::new(name, color, points) }
    }
}

impl Chart {
    /// The chart as an SVG document of the given size in pixels. `name` is for errors.
    pub fn svg(&self, name: &str, size: (u32, u32)) -> Result<String> {
        render(name, size, |backend| self.draw(backend))
    }

    fn draw(&self, backend: SVGBackend<'_>) -> Drawn {
        let root = backend.into_drawing_area();
        root.fill(&WHITE)?;
        let below = draw_title(&root, &self.title, &self.subtitle)?;
        let (width, _) = below.dim_in_pixel();
        let (left, _) = below.split_horizontally(width - self.names);
        let mut chart = ChartBuilder::on(&left)
            .x_label_area_size(48)
            .y_label_area_size(74)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.13))
            .x_desc(self.x.label.as_str())
            .y_desc(self.y.label.as_str())
            .axis_desc_style(font(16, BLACK))
            .label_style(font(14, BLACK))
            .draw()?;
        let (top, bottom) = {
            let (low, high) = self.y.range;
            let height = |v: f64| chart.backend_coord(&(self.x.range.0, v)).1;
            (height(high), height(low))
        };
        let mut names = Vec::new();
        for series in &self.series {
            let pixels: Vec<(i32, i32)> = series
                .points
                .iter()
                .filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y))
                .map(|point| chart.backend_coord(point))
                .collect();
            let style = series.color.stroke_width(if series.mark.is_some() { 2 } else { 1 });
            if series.line {
                stroke(&root, &pixels, style, series.dashed)?;
            }
            if let Some(shape) = series.mark {
                for pixel in &pixels {
                    mark(&root, shape, *pixel, 4, series.color)?;
                }
            }
            if let (Some(last), false) = (pixels.last(), series.name.is_empty()) {
                names.push((series, *last));
            }
        }
        for (x, y, note) in &self.notes {
            if self.x.shows(*x) && self.y.shows(*y) {
                let (x, y) = chart.backend_coord(&(*x, *y));
                root.draw(&Text::new(note.clone(), (x + 6, y - 15), font(12, RGBColor(70, 70, 70))))?;
            }
        }
        names.sort_by_key(|(_, (_, y))| *y);
        let mut heights: Vec<i32> = names.iter().map(|(_, (_, y))| *y).collect();
        spread(&mut heights, 19, (top, bottom));
        let edge = chart.backend_coord(&(self.x.range.1, self.y.range.0)).0;
        for ((series, (x, y)), height) in names.into_iter().zip(heights) {
            // A line to the name, unless the points end far from it.
            if edge - x < NEAR {
                let thin = series.color.mix(0.5).stroke_width(1);
                root.draw(&PathElement::new([(x + 6, y), (edge + 4, y), (edge + 16, height)], thin))?;
            }
            if let Some(shape) = series.mark {
                mark(&root, shape, (edge + 24, height), 4, series.color)?;
            }
            let style = font(14, series.color).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(series.name.clone(), (edge + 34, height), style))?;
        }
        root.present()?;
        Ok(())
    }
}

/// A line through pixels, dashed or not.
fn stroke(area: &Area<'_>, pixels: &[(i32, i32)], style: ShapeStyle, dashed: bool) -> Drawn {
    if !dashed {
        area.draw(&PathElement::new(pixels.to_vec(), style))?;
        return Ok(());
    }
    let (dash, gap) = (6.0, 4.0);
    // Where in the pattern of dashes and gaps the line is.
    let mut phase = 0.0;
    for pair in pixels.windows(2) {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]].map(|(x, y)| (f64::from(x), f64::from(y)));
        let length = (x1 - x0).hypot(y1 - y0);
        let at = |s: f64| {
            let part = s / length;
            ((x0 + part * (x1 - x0)).round() as i32, (y0 + part * (y1 - y0)).round() as i32)
        };
        let mut s = 0.0;
        while s < length {
            let (on, left) = if phase < dash { (true, dash - phase) } else { (false, dash + gap - phase) };
            let end = (s + left).min(length);
            if on {
                area.draw(&PathElement::new([at(s), at(end)], style))?;
            }
            phase = (phase + end - s) % (dash + gap);
            s = end;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::axis::Scale;
    use super::*;

    #[test]
    fn names_do_not_overlap() {
        let mut heights = [10, 11, 12, 95, 99];
        spread(&mut heights, 15, (0, 100));
        assert_eq!(heights, [10, 25, 40, 85, 100]);
        let mut low = [99, 99, 99];
        spread(&mut low, 20, (0, 100));
        assert_eq!(low, [60, 80, 100]);
    }

    #[test]
    fn a_chart_has_its_names_axes_and_points() {
        let series = |name: &str, dashed| Series {
            name: name.to_owned(),
            color: RGBColor(200, 0, 0),
            mark: Some(Mark::Star),
            dashed,
            line: true,
            points: vec![(1.0, 0.1), (2.0, 0.02), (4.0, f64::NAN), (4.0, 0.0)],
        };
        let chart = Chart {
            title: "Title & more".to_owned(),
            subtitle: "second".to_owned(),
            x: Axis {
                label: "workers".to_owned(),
                range: (1.0, 4.0),
                scale: Scale::Linear,
                ticks: vec![1.0, 4.0],
            },
            y: Axis::log("NMSE", [0.1, 0.02].into_iter()),
            series: vec![series("one", false), series("two", true)],
            notes: vec![(1.0, 0.1, "note".to_owned())],
            names: 120,
        };
        let svg = chart.svg("chart", (640, 400)).unwrap();
        for text in ["Title &amp; more", "second", "workers", "NMSE", "one", "two", "note", "0.05"] {
            assert!(svg.contains(text), "{text}");
        }
        // Two stars per line: points that a logarithmic axis cannot show are left out.
        assert_eq!(svg.matches("<polygon").count(), 2 * 2 + 2);
    }
}
