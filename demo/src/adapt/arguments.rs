//! The command `thc adapt` and its arguments.

use std::path::PathBuf;

use clap::Args;
use thc_adapt::layerwise::{Problem, STEPS, discrete, exact};
use thc_adapt::thc;
use thc_codec::table::choose;

use super::profile::Profile;
use super::report::{Report, Row};
use crate::error::{Error, Result};

const RAW: &str = "raw";
/// Bits of an index and of a sum (P2).
const FORMS: [(u8, u8); 12] =
    [(1, 4), (1, 8), (2, 4), (2, 8), (3, 4), (3, 8), (4, 8), (1, 16), (2, 16), (3, 16), (4, 16), (8, 16)];

/// A compression that a layer may get.
struct Choice {
    name: String,
    /// The bits of an index and of a sum, and the error relative to the squared norm. `None` for RAW.
    table: Option<(u8, u8, f64)>,
}

/// Choose each layer's compression (L-GreCo).
#[derive(Args)]
#[command(
    after_help = "Chooses one of several compressions for each layer, so that all layers together cost the fewest bytes and lose \
                  no more\nthan the default for all of them would (L-GreCo). What THC loses of a layer follows from its norm.\n\n\
                  FILE is one of\n  \
                  gradients.npz    an array for each layer, as numpy.savez writes it\n  \
                  profile.toml     [[layer]] with name, size (coordinates) and norm\n  \
                  profile.json     {\"layer\": [{\"name\": …, \"size\": …, \"norm\": …}, …]}\n\
                  A profile of another compressor has choices = [\"rank 1\", …] and, for each layer, costs and errors instead of \
                  norm.\n\n\
                  Examples:\n  \
                  python3 -c \"import numpy as n; r = n.random.default_rng(1); \
                  n.savez('g.npz', conv=r.normal(0, 1, (64, 27)), fc=r.normal(0, .01, (512, 512)))\"\n  \
                  thc adapt g.npz --workers 4\n  \
                  thc adapt g.npz --workers 4 --choices 2/4,3,4,8 --exact --json"
)]
pub struct AdaptArgs {
    /// Gradients by layer (.npz), or a profile (.toml, .json)
    file: PathBuf,
    /// Workers whose gradients are averaged
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Choices of a layer: tables, by the bits of an index and of a sum, like 2/4, or of an index alone, like 4; and raw,
    /// which sends 32-bit integers [default: raw and all tables that fit this many workers]
    #[arg(long, value_name = "TABLE", value_delimiter = ',')]
    choices: Vec<String>,
    /// The choice whose error, if all layers had it, is the bound
    #[arg(long, value_name = "TABLE", default_value = "4")]
    default: String,
    /// Allow this total error, as a squared L2 norm, instead of that of the default choice
    #[arg(long, value_name = "ERROR")]
    bound: Option<f64>,
    /// Steps in which the dynamic program counts errors
    #[arg(long, default_value_t = STEPS, conflicts_with = "exact")]
    steps: usize,
    /// Solve without steps, and prove how good the answer is
    #[arg(long)]
    exact: bool,
    /// Coordinates that are transformed together, as a power of two
    #[arg(long, value_name = "LOG2", default_value_t = 13, value_parser = clap::value_parser!(u8).range(10..=20))]
    block: u8,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl AdaptArgs {
    /// Reads the file and chooses.
    ///
    /// # Errors
    /// An error if the file cannot be read, or if no choice is possible.
    pub fn run(&self) -> Result<Report> {
        let profile = Profile::read(&self.file)?;
        let choices = if profile.choices.is_empty() {
            self.tables()?
        } else {
            profile.choices.iter().map(|name| Choice { name: name.clone(), table: None }).collect()
        };
        let mut costs = Vec::new();
        let mut errors = Vec::new();
        for layer in &profile.layers {
            match (&layer.costs, &layer.errors) {
                (Some(cost), Some(error)) => {
                    costs.push(cost.clone());
                    errors.push(error.clone());
                }
                _ => {
                    let square = layer.norm.unwrap_or_default().powi(2);
                    costs.push(choices.iter().map(|c| self.bytes(layer.size, c)).collect::<Result<_>>()?);
                    errors.push(choices.iter().map(|c| c.table.map_or(0.0, |t| t.2 * square)).collect());
                }
            }
        }
        let problem = Problem::new(&costs, &errors)?;
        let named = choices.iter().position(|choice| {
            choice.name == self.default
                || choice.table.is_some_and(|(bits, ..)| bits.to_string() == self.default)
        });
        let uniform = named.map(|default| problem.price(&vec![default; problem.layers()])).transpose()?;
        let bound = match (self.bound, &uniform) {
            (Some(bound), _) => bound,
            (None, Some(uniform)) => uniform.error,
            (None, None) => {
                let choices = choices.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
                let default = &self.default;
                return Err(Error::Usage(format!(
                    "--default {default:?} is none of the choices {choices}: name one of them, or give --bound"
                )));
            }
        };
        let found = if self.exact { exact(&problem, bound)? } else { discrete(&problem, bound, self.steps)? };
        let rows = profile.layers.iter().zip(&found.choices).enumerate();
        let rows = rows.map(|(at, (layer, &choice))| Row {
            layer: layer.name.clone(),
            coordinates: layer.size,
            norm: layer.norm,
            choice: choices[choice].name.clone(),
            error: problem.errors(at)[choice],
            cost: problem.costs(at)[choice],
            share: if found.cost > 0.0 { problem.costs(at)[choice] / found.cost } else { 0.0 },
        });
        Ok(Report {
            rows: rows.collect(),
            default: named.map(|default| choices[default].name.clone()),
            default_cost: uniform.map(|uniform| uniform.cost),
            cost: found.cost,
            error: found.error,
            bound,
            least_cost: found.least_cost,
        })
    }

    /// A compression that a layer may get.
    fn tables(&self) -> Result<Vec<Choice>> {
        let raw = || Choice { name: RAW.to_owned(), table: None };
        if self.choices.is_empty() {
            // A table is hardly better with wider sums than necessary.
            let fits = |&(bits, lane): &(u8, u8)| self.table(bits, lane).ok();
            return Ok(FORMS.iter().filter_map(fits).chain([raw()]).collect());
        }
        self.choices.iter().map(|name| if name == RAW { Ok(raw()) } else { self.find(name) }).collect()
    }

    /// The table of this name. For a width alone this is the table with the narrowest sums of at least 8 bits.
    fn find(&self, name: &str) -> Result<Choice> {
        let unknown = || {
            Error::Usage(format!(
                "--choices {name:?} is not a table: write bits of an index (1, 2, 3, 4 or 8) and of a sum, like 2/4, 3/8 or \
                 8/16, or raw"
            ))
        };
        let (bits, lane) = match name.split_once('/') {
            Some((bits, lane)) => (bits, Some(lane.parse::<u8>().map_err(|_| unknown())?)),
            None => (name, None),
        };
        let bits = bits.parse().map_err(|_| unknown())?;
        let known = |lane: u8| FORMS.contains(&(bits, lane)).then_some(lane);
        match lane {
            Some(lane) => self.table(bits, known(lane).ok_or_else(unknown)?),
            None => match (known(8), known(16)) {
                (Some(lane), wide) => self.table(bits, lane).or_else(|error| match wide {
                    Some(wide) => self.table(bits, wide),
                    None => Err(error),
                }),
                (None, wide) => self.table(bits, wide.ok_or_else(unknown)?),
            },
        }
    }

    fn table(&self, bits: u8, lane: u8) -> Result<Choice> {
        let chosen = choose(bits, lane, self.workers.into())?;
        Ok(Choice {
            name: format!("{bits}/{lane}"),
            table: Some((bits, lane, thc::nmse(&chosen.table, self.workers))),
        })
    }

    fn bytes(&self, coordinates: usize, choice: &Choice) -> Result<f64> {
        match choice.table {
            Some((bits, lane, _)) => Ok(thc::bytes(coordinates, bits, lane, self.block)?),
            None => Ok(thc::raw_bytes(coordinates, self.block)),
        }
    }
}
