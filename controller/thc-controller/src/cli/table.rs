//! `table`: the lookup tables of all jobs.

use super::connection::Connection;
use super::grid::{Grid, short};
use super::terminal::{Failure, print, print_json};
use clap::Subcommand;
use thc_control_proto::v1::{ListTablesRequest, Table};

/// What can be asked of lookup tables: they come and go with the jobs that use them.
#[derive(Subcommand, Debug)]
pub enum TableCommand {
    /// List all tables with their values
    List,
}

/// Prints the tables.
pub async fn run(
    TableCommand::List: TableCommand,
    connection: Connection,
    json: bool,
) -> Result<(), Failure> {
    let list = connection.client().list_tables(ListTablesRequest {}).await?.into_inner();
    if json { print_json(&list) } else { print(&list_text(&list.tables)) }
}

fn list_text(tables: &[Table]) -> String {
    let mut grid = Grid::new(&[">TABLE", ">B", "FORM", ">G", ">P", "JOBS", "VALUES"]);
    for table in tables {
        let values: Vec<String> = table.values.iter().map(u8::to_string).collect();
        grid.row([
            table.id.to_string(),
            table.bits.to_string(),
            format!("{}/{}", table.width, table.lane),
            table.granularity.to_string(),
            short(&table.fraction),
            table.jobs.join(","),
            values.join(" "),
        ]);
    }
    if grid.is_empty() {
        return "no tables: they come with jobs\n".to_owned();
    }
    grid.to_string()
}
