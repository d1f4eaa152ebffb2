//! The command line of `thc papers`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::gradients::Gradients;
use super::{aqgb, double_quantization, layers, nmse};
use crate::error::{Error, Result};

/// `thc papers`
#[derive(Args)]
#[command(after_help = "docs/papers.md compares these numbers with what the papers published.\n\n\
                        Examples:\n  \
                        thc papers --out docs/papers\n  \
                        target/python-venv-newest/bin/python testbed/bench-torch/gradients.py --out gradients\n  \
                        thc papers --gradients gradients --out docs/papers")]
pub struct PapersArgs {
    /// Also measure gradients of real architectures; testbed/bench-torch/gradients.py makes such a folder
    #[arg(long, value_name = "DIR")]
    gradients: Option<PathBuf>,
    /// Folder for the JSON files
    #[arg(short, long, value_name = "DIR", default_value = "papers")]
    out: PathBuf,
    /// Seed of all vectors and roundings
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Short vectors and few trials: only to see that it works
    #[arg(long)]
    quick: bool,
}

impl PapersArgs {
    /// Measures, prints tables, and writes a JSON file for each source.
    pub fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.out)
            .map_err(|source| Error::File { path: self.out.clone(), source })?;
        let mut out = std::io::stdout();
        let mut print = |text: &dyn std::fmt::Display| writeln!(out, "{text}").map_err(Error::Output);
        let keep = |name: &str, numbers: &Value| {
            let text = serde_json::to_string_pretty(numbers).map_err(Error::Event)?;
            let path = self.out.join(name);
            match std::fs::write(&path, text + "\n") {
                Ok(()) => Ok(path),
                Err(source) => Err(Error::File { path, source }),
            }
        };
        if let Some(folder) = &self.gradients {
            let gradients = Gradients::open(folder)?;
            let mut numbers = json!({ "command": "thc papers --gradients DIR", "seed": self.seed });
            for measure in [layers::errors, layers::choices] {
                let sheet = measure(&gradients, self.seed)?;
                print(&sheet.text())?;
                numbers[sheet.name] = sheet.json();
            }
            print(&keep("gradients.json", &numbers)?.display())?;
        }
        print(&keep("aqgb.json", &aqgb::figures(self.quick)?)?.display())?;
        let mut numbers = json!({ "command": "thc papers", "seed": self.seed, "quick": self.quick, "tables": nmse::tables()? });
        for measure in [nmse::schemes, nmse::workers, nmse::granularity] {
            let sheet = measure(self.seed, self.quick)?;
            print(&sheet.text())?;
            numbers[sheet.name] = sheet.json();
        }
        print(&keep("nmse.json", &numbers)?.display())?;
        let sheet = double_quantization::methods(self.seed, self.quick)?;
        print(&sheet.text())?;
        let numbers = json!({ "command": "thc papers", "seed": self.seed, sheet.name: sheet.json() });
        print(&keep("double_quantization.json", &numbers)?.display())
    }
}
