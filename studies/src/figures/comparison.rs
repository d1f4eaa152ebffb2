//! All schemes with four workers that hold the same gradient: the paper's Fig. 2b.

use serde_json::{Value, json};

use super::catalogue::{self, Entry};
use super::gradients::Source;
use super::measure::{Measured, Setting, measure};
use super::run::FigurePlan;
use crate::charts::{Axis, DotPlot, Figure, Kind, Mark, PUBLISHED, Picture, RGBColor, Row, Table, short};
use crate::error::Result;
use thc_demo::distribution::Distribution;
use thc_demo::nmse::Vectors;

/// Workers of the paper's testbed.
const WORKERS: u32 = 4;
/// Rounds over which error feedback can work.
const ROUNDS: u32 = 16;
const NAME: &str = "nmse-schemes";

/// One kind of measurement for all schemes.
struct Column {
    /// Key in the numbers.
    key: &'static str,
    kind: Kind,
    measured: Vec<Option<Measured>>,
}

fn kind(name: &str, mark: Mark, (r, g, b): (u8, u8, u8)) -> Kind {
    Kind { name: name.to_owned(), mark, color: RGBColor(r, g, b) }
}

/// Measures everything that the figure shows.
fn columns(plan: &FigurePlan, trials: u32) -> Result<Vec<Column>> {
    let setting = |vectors, rounds| Setting { workers: WORKERS, vectors, rounds };
    let drawn =
        |dimension| Source::Drawn { distribution: Distribution::Lognormal, dimension, seed: plan.seed };
    let measure = |source: &Source, setting: Setting, trials, name: &str| -> Result<Vec<Option<Measured>>> {
        let found = measure(source, &[setting], trials, plan.seed, (&plan.progress, name))?;
        Ok(found.into_iter().next().unwrap_or_default())
    };
    let mut columns = vec![
        Column {
            key: "copies",
            kind: kind("4 copies of one", Mark::Circle, (200, 30, 30)),
            measured: measure(
                &drawn(plan.dimension),
                setting(Vectors::Copies, 1),
                trials,
                "schemes, copies",
            )?,
        },
        Column {
            key: "independent",
            kind: kind("4 different ones", Mark::Hollow, (30, 90, 180)),
            measured: measure(
                &drawn(plan.dimension),
                setting(Vectors::Independent, 1),
                trials,
                "schemes, different vectors",
            )?,
        },
        Column {
            key: "copies_many_rounds",
            kind: kind("copies, mean of 16 rounds", Mark::Triangle, (130, 130, 130)),
            measured: measure(
                &drawn(plan.dimension / 4),
                setting(Vectors::Copies, ROUNDS),
                trials.div_ceil(5),
                "schemes, many rounds",
            )?,
        },
    ];
    if let Some(saved) = &plan.saved {
        let source = Source::Saved(saved.clone());
        columns.push(Column {
            key: "saved_copies",
            kind: kind("4 copies, training", Mark::Square, (20, 130, 60)),
            measured: measure(&source, setting(Vectors::Copies, 1), trials, "schemes, saved copies")?,
        });
        if saved.workers() >= WORKERS as usize {
            columns.push(Column {
                key: "saved",
                kind: kind("4 workers, training", Mark::Diamond, (120, 190, 60)),
                measured: measure(
                    &source,
                    setting(Vectors::Independent, 1),
                    trials,
                    "schemes, saved gradients",
                )?,
            });
        }
    }
    Ok(columns)
}

/// Makes the figure.
pub fn figure(plan: &FigurePlan) -> Result<Figure> {
    let trials = plan.trials(20);
    let columns = columns(plan, trials)?;
    // For labels only: parameters that depend on the vectors do not show.
    let entries = catalogue::entries(WORKERS, 1.0)?;
    let value = |column: &Column, i: usize| column.measured[i].map(|m| m.nmse.mean);
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|a, b| {
        let [a, b] = [*a, *b].map(|i| value(&columns[0], i).unwrap_or_default());
        a.total_cmp(&b)
    });

    let row = |i: &usize| {
        let (entry, properties) = (&entries[*i], entries[*i].scheme.properties());
        let bits = columns[0].measured[*i].map_or((0.0, 0.0), |m| (m.bits_up, m.bits_down));
        let mut values: Vec<Option<f64>> = columns.iter().map(|column| value(column, *i)).collect();
        values.push(entry.published);
        Row {
            name: entry.label.to_owned(),
            detail: format!(
                "{:.1} bits up, {:.1} down, {}",
                bits.0,
                bits.1,
                if properties.unbiased { "unbiased" } else { "biased" }
            ),
            values,
        }
    };
    let mut kinds: Vec<Kind> = columns.iter().map(|column| column.kind.clone()).collect();
    kinds.push(Kind { name: "published (paper)".to_owned(), mark: Mark::Star, color: PUBLISHED });
    let rows: Vec<Row> = order.iter().filter(|i| entries[**i].label != "no compression").map(row).collect();
    let shown = rows.iter().flat_map(|row| &row.values).flatten().copied();
    let plot = DotPlot {
        title: "Error of the mean of four workers, by scheme".to_owned(),
        subtitle: format!(
            "log-normal vectors of {} coordinates, {trials} trials; numbers: 4 copies of one, one round",
            plan.dimension
        ),
        axis: Axis::log("NMSE, ‖estimate − mean‖² / ‖mean‖² (log scale)", shown),
        kinds,
        rows,
    };
    Ok(Figure {
        name: NAME.to_owned(),
        title: "Error of the mean of four workers, by scheme (the paper's Fig. 2b)".to_owned(),
        text: text(&columns, &entries),
        pictures: vec![Picture { name: NAME.to_owned(), svg: plot.svg(NAME, 940)? }],
        table: table(&columns, &entries, &order),
        numbers: numbers(plan, &columns, &entries),
    })
}

fn numbers(plan: &FigurePlan, columns: &[Column], entries: &[Entry]) -> Value {
    let scheme = |(i, entry): (usize, &Entry)| {
        let properties = entry.scheme.properties();
        let mut object = json!({
            "label": entry.label,
            "parameters": entry.scheme.name(),
            "source": entry.scheme.source(),
            "unbiased": properties.unbiased,
            "homomorphic": properties.homomorphic,
            "error_feedback": properties.error_feedback,
            "recompressed_by_server": properties.recompressed,
            "published": entry.published,
        });
        for column in columns {
            object[column.key] = json!(column.measured[i]);
        }
        object
    };
    json!({
        "figure": NAME,
        "paper": "Fig. 2b",
        "workers": WORKERS,
        "distribution": "lognormal",
        "dimension": plan.dimension,
        "many_rounds": { "rounds": ROUNDS, "dimension": plan.dimension / 4 },
        "saved_steps": plan.saved.as_ref().map(|saved| saved.steps()),
        "seed": plan.seed,
        "schemes": entries.iter().enumerate().map(scheme).collect::<Vec<_>>(),
    })
}

fn table(columns: &[Column], entries: &[Entry], order: &[usize]) -> Table {
    let mut header: Vec<String> =
        ["scheme", "bits up", "bits down", "unbiased", "adds up"].map(str::to_owned).to_vec();
    header.extend(columns.iter().map(|column| column.kind.name.clone()));
    header.push("published".to_owned());
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let row = |i: &usize| {
        let (entry, properties) = (&entries[*i], entries[*i].scheme.properties());
        let bits = columns[0].measured[*i].map_or((0.0, 0.0), |m| (m.bits_up, m.bits_down));
        let mut cells = vec![
            entry.label.to_owned(),
            format!("{:.2}", bits.0),
            format!("{:.2}", bits.1),
            yes(properties.unbiased),
            yes(properties.homomorphic),
        ];
        for column in columns {
            cells.push(match column.measured[*i].map(|m| m.nmse) {
                Some(nmse) => match nmse.standard_error {
                    Some(error) if error > 0.01 * nmse.mean => {
                        format!("{} ± {}", short(nmse.mean), short(error))
                    }
                    _ => short(nmse.mean),
                },
                None => "–".to_owned(),
            });
        }
        cells.push(entry.published.map_or_else(|| "–".to_owned(), short));
        cells
    };
    Table { header, rows: order.iter().map(row).collect() }
}

fn text(columns: &[Column], entries: &[Entry]) -> Vec<String> {
    let nmse = |column: usize, label: &str| {
        let i = entries.iter().position(|entry| entry.label == label);
        i.and_then(|i| columns[column].measured[i]).map(|measured| measured.nmse)
    };
    let mut text = vec![
        "NMSE is the squared error of the mean that workers receive, relative to the squared norm of the true \
         mean. Each scheme includes its parameter server: those that are not marked “adds up” decode all \
         messages and compress the mean a second time for the way down. Bits are those of real messages \
         (both stages), per coordinate and worker."
            .to_owned(),
        format!(
            "Red circles are four copies of one log-normal vector, as in the paper's own simulations (appendix D.4): errors \
             average out only as far as the workers' coins are independent. Blue circles are four different vectors. Grey \
             triangles are the mean of {ROUNDS} rounds with the same copies: unbiased schemes gain a factor of \
             {ROUNDS}, and error feedback shows what it is for: what a round loses comes later, so the error of the mean falls \
             with the square of the rounds as long as it does not grow. DGC is left out there, since its momentum adds up several gradients on purpose; in one round it \
             is TopK."
        ),
    ];
    if let (Some(tern), Some(top)) = (nmse(0, "TernGrad"), nmse(0, "TopK 10 %")) {
        text.push(format!(
            "Published (section 2.1): TernGrad 6.95, TopK 10 % 0.46; the text does not say on which gradients. \
             Here TernGrad has {} (single trials from {} to {}: it depends on the largest of all coordinates), and TopK \
             10 % has {}. So TernGrad agrees with log-normal copies, and TopK does not; the next figure looks for \
             gradients that give both.",
            short(tern.mean),
            short(tern.min),
            short(tern.max),
            short(top.mean)
        ));
    }
    text.push(
        "The threshold of the 2-bit scheme is the root mean square of the vectors (near its best for one round); \
         signSGD is scaled by the mean magnitude. QSGD has 7 levels up and 127 down, with its usual buckets of 512 \
         coordinates and with one norm for all. PowerSGD gets the vector as one square matrix: drawn vectors have no \
         structure that it could find, apart from their mean. Log-normal coordinates are all positive, which helps \
         schemes that send signs when vectors differ: the mean of many comes close to a constant."
            .to_owned(),
    );
    text
}
