//! `table`: install, list, delete.

use super::connection::Connection;
use super::failure::Failure;
use super::grid::{Grid, short};
use super::terminal::{print, print_json};
use clap::{ArgGroup, Args, Subcommand};
use thc_control_proto::v1::{DeleteTableRequest, InstallTableRequest, ListTablesRequest, Table};

const INSTALL: &str = "\
Examples:
  The best table for 8 workers; and the paper's:
    thc-controller table install --workers 8
    thc-controller table install --granularity 30 --fraction 1/32

Jobs bring their own tables; a table that is installed here stays on the targets even when no job uses it.";

/// What can be done with lookup tables.
#[derive(Subcommand, Debug)]
pub enum TableCommand {
    /// Solve a table and install it on all targets
    #[command(after_help = INSTALL)]
    Install(InstallFlags),
    /// List all tables with their values
    List,
    /// Delete a table that no job uses
    Delete {
        /// The table's number, as `table list` shows it
        id: u32,
    },
}

/// Which table.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").required(true).args(["granularity", "workers"]))]
pub struct InstallFlags {
    /// Bit budget b, 1 to 4
    #[arg(long, value_name = "B", default_value_t = 4)]
    bits: u32,
    /// Granularity g
    #[arg(long, value_name = "G", requires = "fraction")]
    granularity: Option<u32>,
    /// Truncated fraction p, such as 1/32
    #[arg(long, value_name = "P", requires = "granularity", conflicts_with = "workers")]
    fraction: Option<String>,
    /// Choose the best granularity and fraction for this many workers
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
}

/// Does it.
pub async fn run(command: TableCommand, connection: Connection, json: bool) -> Result<(), Failure> {
    let mut client = connection.client();
    match command {
        TableCommand::Install(InstallFlags { bits, granularity, fraction, workers }) => {
            let request = InstallTableRequest { bits, granularity, fraction, workers };
            let table = client.install_table(request).await?.into_inner();
            if json { print_json(&table) } else { print(&list_text(&[table])) }
        }
        TableCommand::List => {
            let list = client.list_tables(ListTablesRequest {}).await?.into_inner();
            if json { print_json(&list) } else { print(&list_text(&list.tables)) }
        }
        TableCommand::Delete { id } => {
            let answer = client.delete_table(DeleteTableRequest { id }).await?.into_inner();
            if json { print_json(&answer) } else { print(&format!("table {id} deleted\n")) }
        }
    }
}

fn list_text(tables: &[Table]) -> String {
    let mut grid = Grid::new(&[">TABLE", ">B", "FORM", ">G", ">P", "KEPT", "JOBS", "VALUES"]);
    for table in tables {
        let values: Vec<String> = table.values.iter().map(u8::to_string).collect();
        grid.row([
            table.id.to_string(),
            table.bits.to_string(),
            format!("{}/{}", table.width, table.lane),
            table.granularity.to_string(),
            short(&table.fraction),
            if table.installed { "yes" } else { "no" }.to_owned(),
            table.jobs.join(","),
            values.join(" "),
        ]);
    }
    if grid.is_empty() {
        return "no tables: they come with jobs, or by `thc-controller table install`\n".to_owned();
    }
    grid.to_string()
}
