//! The command line of the programs: short and long help, completions, the manual page, and their settings.

mod settings;

pub use settings::default_of;

use crate::logs::{print, print_error};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use toml::Table;

/// The widest line of any help.
pub const WIDTH: usize = 96;
/// Exit status of wrong flags and configuration.
pub const USAGE: u8 = 2;

/// Text that a program prints instead of running.
#[derive(Debug)]
pub enum Stop {
    /// Text that was asked for.
    Text(String),
    /// Help, the version, or an error of the command line.
    Clap(clap::Error),
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Stop {
        Stop::Clap(error)
    }
}

impl Stop {
    /// Prints it and returns the exit status: 0 for what was asked for, [`USAGE`] for a wrong command line, 1 if standard output
    /// cannot be written.
    pub fn print(&self) -> ExitCode {
        let printed = match self {
            Stop::Clap(error) if error.use_stderr() => {
                let _ = error.print();
                return ExitCode::from(USAGE);
            }
            Stop::Clap(error) => error.print(),
            Stop::Text(text) => print(text),
        };
        match printed {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                print_error(error);
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        }
    }
}

/// Reads the command line. `-h` shows the options `short`. A command with an option `config` also gets `--print-config`.
///
/// # Errors
/// [`Stop`] if there is something to print instead of running.
pub fn read(command: Command, short: &[&str]) -> Result<ArgMatches, Stop> {
    read_from(command, short, std::env::args_os())
}

fn read_from(
    command: Command,
    short: &[&str],
    words: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, Stop> {
    let generate = Arg::new("generate")
        .long("generate")
        .value_name("SHELL|man")
        .value_parser(["bash", "zsh", "fish", "man"])
        .exclusive(true)
        .help_heading(None)
        .help("Print completions for a shell, or the manual page");
    // A command without arguments still shows its help where it needs a subcommand.
    let command = shorten(command.arg(generate), short).subcommand_required(false);
    let mut command = with_negative_numbers(with_print_config(command));
    let words: Vec<OsString> = words.into_iter().collect();
    let matches = if words.iter().any(|word| word.to_string_lossy().starts_with("--generate")) {
        // The values of variables would count as further arguments, beside which there is no --generate.
        command.clone().mut_args(|arg| arg.env(None)).try_get_matches_from(words)?
    } else {
        command.try_get_matches_from_mut(words)?
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for (name, read) in misspelt(&command, names) {
        print_error(format_args!(
            "{}: nothing reads the variable {name}; {read} is similar",
            command.get_name()
        ));
    }
    if let Some(what) = matches.get_one::<String>("generate") {
        return Err(Stop::Text(generated(command, what)?));
    }
    let (of, given) = match matches.subcommand() {
        Some((name, given)) => (command.find_subcommand(name).unwrap_or(&command), given),
        None => (&command, &matches),
    };
    if let Ok(Some(true)) = given.try_get_one("print_config") {
        let path = given.try_get_one::<PathBuf>("config").ok().flatten();
        let table = path.map_or_else(|| Ok(Table::new()), |path| file(path));
        let table = table.map_err(|error| of.clone().error(ErrorKind::ValueValidation, error))?;
        return Err(Stop::Text(settings::settings(of, given, &table)));
    }
    Ok(matches)
}

/// The variables among `names` that the command does not read, each with a similar one that it reads.
fn misspelt(command: &Command, names: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let subcommands: Vec<&Command> = command.get_subcommands().collect();
    let args = subcommands.iter().copied().chain([command]).flat_map(Command::get_arguments);
    let read: Vec<String> =
        args.filter_map(|arg| arg.get_env()).map(|name| name.to_string_lossy().into_owned()).collect();
    let similar = |name: &str| read.iter().find(|read| strsim::osa_distance(name, read) <= 2).cloned();
    names
        .filter(|name| name.starts_with("THC_") && !read.contains(name))
        .filter_map(|name| similar(&name).map(|read| (name, read)))
        .collect()
}

/// Reads `-2` after an option as its value, so that the error names the option.
fn with_negative_numbers(command: Command) -> Command {
    let takes = |arg: Arg| {
        let takes_values = arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_values)
    };
    command.mut_args(takes).mut_subcommands(with_negative_numbers)
}

/// Adds `--print-config` to the command that reads a configuration: this one, or its subcommand `run`.
fn with_print_config(command: Command) -> Command {
    let reads = |command: &Command| command.get_arguments().any(|arg| arg.get_id() == "config");
    let flag = Arg::new("print_config")
        .long("print-config")
        .action(ArgAction::SetTrue)
        .help_heading(None)
        .hide_short_help(true)
        .help("Print each setting, where it comes from, and its value; then exit");
    if reads(&command) {
        command.arg(flag)
    } else if command.find_subcommand("run").is_some_and(reads) {
        command.mut_subcommand("run", |run| run.arg(flag))
    } else {
        command
    }
}

fn file(path: &Path) -> Result<Table, String> {
    let error = |cause: &str| format!("cannot read {}: {cause}", path.display());
    let text = std::fs::read_to_string(path).map_err(|cause| error(&cause.to_string()))?;
    crate::file::parse(&text).map_err(|cause| error(&cause.to_string()))
}

fn generated(mut command: Command, what: &str) -> Result<String, clap::Error> {
    let mut text = Vec::new();
    match what.parse::<Shell>() {
        Ok(shell) => {
            let name = command.get_name().to_owned();
            clap_complete::generate(shell, &mut command, name, &mut text);
        }
        Err(_) => {
            command = command.disable_help_subcommand(true);
            command.build();
            manual(&command, &mut text)?;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Writes the manual page of a command, and those of its subcommands after it.
fn manual(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    clap_mangen::Man::new(command.clone()).render(text)?;
    command.get_subcommands().filter(|inner| !inner.is_hide_set()).try_for_each(|inner| manual(inner, text))
}

/// Makes `-h` show only the options `short`, each with its first clause and its default, and no examples.
fn shorten(command: Command, short: &[&str]) -> Command {
    let examples = command.get_after_help().cloned().unwrap_or_default();
    command
        .mut_args(|arg| shorten_option(arg, short))
        .after_help("--help shows all options, and examples.")
        .after_long_help(examples)
        .max_term_width(WIDTH)
}

/// The longest default that leaves an option of the short help on one line.
const SHORT_DEFAULT: usize = 40;

fn shorten_option(arg: Arg, short: &[&str]) -> Arg {
    if !short.contains(&arg.get_id().as_str()) {
        return arg.hide_short_help(true);
    }
    let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let long = arg.get_long_help().map_or_else(|| text.clone(), ToString::to_string);
    let variable = arg.get_env().map(|name| format!(" [env: {}]", name.to_string_lossy()));
    let long = long + &variable.unwrap_or_default();
    let (all, default) = text.split_at(text.rfind(" [default").unwrap_or(text.len()));
    let default = if default.len() > SHORT_DEFAULT { "" } else { default };
    let first = |clause, end| str::split(clause, end).next().unwrap_or(clause);
    let help = [";", ". ", ", such", ", or ", ": "].iter().fold(all, |clause, end| first(clause, *end));
    arg.help(format!("{help}{default}")).long_help(long).hide_env(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn short_help_has_one_line_for_each_option() {
        let option = |name: &'static str| Arg::new(name).long(name);
        let command = Command::new("p")
            .arg(option("used").help("Address, such as this; or another. More [default: none]"))
            .arg(option("rare").help("Rare"))
            .after_help("Examples: p --rare");
        let mut command = shorten(command, &["used"]);
        let short = command.render_help().to_string();
        assert!(short.contains("Address [default: none]\n") && !short.contains("rare"), "{short}");
        let long = command.render_long_help().to_string();
        assert!(long.contains("or another. More") && long.contains("Examples: p --rare"), "{long}");
        for what in ["bash", "zsh", "fish", "man"] {
            let text = generated(command.clone(), what).unwrap();
            assert!(text.contains("rare") && text.contains("used"), "{what}: {text}");
        }
    }

    fn read_words(words: &[&str]) -> Result<ArgMatches, Stop> {
        let command = Command::new("p").args([
            Arg::new("config").long("config").value_parser(clap::value_parser!(PathBuf)),
            Arg::new("listen").long("listen").help("Where [default: here]"),
            Arg::new("p4runtime_listen").long("p4runtime"),
            Arg::new("racks").long("racks").help("Racks [default with racks: more]"),
            Arg::new("data_slots").long("data-slots").help("Slots [default for flags: 8]"),
            Arg::new("cookie").long("cookie"),
            Arg::new("log").long("log").default_value("text").env("THC_LOG"),
        ]);
        read_from(command, &[], words.iter().map(OsString::from))
    }

    #[test]
    fn settings_have_their_sources() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        let text = "pin = []\nlisten = 'a'\n[p4runtime]\nlisten = 'b'\n[[job]]\ndata_slots = 4\n[[job]]\ncookie = 77\nmore = [1, { x = 2 }]\n";
        std::fs::write(&file, text).unwrap();
        let words = ["p", "--print-config", "--cookie", "78", "--config", file.to_str().unwrap()];
        let Err(Stop::Text(text)) = read_words(&words) else { panic!() };
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            "--listen file listen \"a\"",
            "--p4runtime file p4runtime.listen \"b\"",
            "--racks default -",
            "--data-slots file job[1].data_slots 4",
            "--cookie flag (secret)",
            "--log default text",
            "job[2].more file [1, { x = 2 }]",
            "pin file []",
        ];
        assert_eq!(rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>(), expected, "{text}");
        let Err(Stop::Text(text)) = read_words(&["p", "--print-config"]) else { panic!() };
        assert!(text.contains("here") && text.contains("8"), "{text}");
        std::fs::write(&file, "cookie = sesame\n").unwrap();
        let Err(Stop::Clap(error)) = read_words(&words) else { panic!() };
        let error = error.to_string();
        assert!(error.contains("p.toml") && !error.contains("sesame"), "{error}");
    }

    #[test]
    fn a_variable_like_one_that_is_read_is_misspelt() {
        let worker = Arg::new("worker").long("worker").env("THC_WORKER");
        let command = Command::new("p").subcommand(Command::new("run").arg(worker));
        let names = ["THC_WORKR", "THC_WORKER", "THC_JOB", "HC_WORKER"].map(str::to_owned);
        let found = misspelt(&command, names.into_iter());
        assert_eq!(found, [("THC_WORKR".to_owned(), "THC_WORKER".to_owned())]);
    }
}
