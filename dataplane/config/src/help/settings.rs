//! `--print-config`: each setting of a program, where it comes from, and its value.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use toml::{Table, Value};

/// Keys whose values are not shown.
const SECRETS: [&str; 3] = ["cookie", "secret", "seed"];
/// Options that are no settings.
const NOT_SETTINGS: [&str; 5] = ["config", "generate", "help", "print_config", "version"];

/// A key of a file.
struct Key<'a> {
    /// With the sections around it, such as `job[2].workers`.
    path: String,
    name: &'a str,
    value: &'a Value,
}

/// The keys of a table, whose path is `path`.
fn keys<'a>(path: &str, table: &'a Table) -> Vec<Key<'a>> {
    let below = |(name, value): (&'a String, &'a Value)| match value {
        Value::Table(table) => keys(&format!("{path}{name}."), table),
        // Only sections have numbers: a table in a list is a value.
        Value::Array(all) if path.is_empty() && all.iter().any(Value::is_table) => {
            let sections = all.iter().filter_map(Value::as_table).zip(1..);
            sections.flat_map(|(table, nth)| keys(&format!("{name}[{nth}]."), table)).collect()
        }
        value => vec![Key { path: format!("{path}{name}"), name, value }],
    };
    table.iter().flat_map(below).collect()
}

/// A line for each setting: its flag, or its key if it has none; where it comes from; and its value.
pub(super) fn settings(command: &Command, matches: &ArgMatches, file: &Table) -> String {
    let mut keys = keys("", file);
    let ids: Vec<&str> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
    // The key `listen` of the section [p4runtime] is the option p4runtime_listen.
    let id = |key: &Key<'_>| {
        let section = key.path.split(['.', '[']).next().unwrap_or_default();
        let long = format!("{section}_{}", key.name);
        ids.iter().find(|id| **id == long).or_else(|| ids.iter().find(|id| **id == key.name)).copied()
    };
    let mut text = String::new();
    let mut line = |key: &str, name: &str, source: &str, value: &str| {
        let value = if SECRETS.contains(&key) && value != "-" { "(secret)" } else { value };
        text += &format!("{name:24}  {source:32}  {value}\n");
    };
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_global_set()) {
        let name = arg.get_id().as_str();
        let (Some(long), false) = (arg.get_long(), NOT_SETTINGS.contains(&name)) else { continue };
        let flag = format!("--{long}");
        let of_file: Vec<Key<'_>> = keys.extract_if(.., |key| id(key) == Some(name)).collect();
        let raw = matches.get_raw(name).into_iter().flatten().map(|raw| raw.to_string_lossy());
        let given = raw.collect::<Vec<_>>().join(",");
        match matches.value_source(name) {
            Some(ValueSource::CommandLine) => line(name, &flag, "flag", &given),
            Some(ValueSource::EnvVariable) => {
                let variable = arg.get_env().unwrap_or_default().to_string_lossy();
                line(name, &flag, &format!("environment {variable}"), &given);
            }
            _ if of_file.is_empty() => line("", &flag, "default", &default_of(arg).unwrap_or("-".to_owned())),
            _ => of_file.iter().for_each(|key| {
                line(name, &flag, &format!("file {}", key.path), &key.value.to_string());
            }),
        }
    }
    keys.iter().for_each(|key| line(key.name, &key.path, "file", &key.value.to_string()));
    text
}

/// An option's default: a value that clap knows, or what the help says, which tests compare with what the program does.
pub fn default_of(arg: &Arg) -> Option<String> {
    let known: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !known.is_empty() {
        return Some(known.join(","));
    }
    let help = arg.get_long_help().or(arg.get_help())?.to_string();
    let marks = ["[default: ", "[default for flags: "];
    let (_, said) = marks.iter().find_map(|mark| help.rsplit_once(mark))?;
    said.split(']').next().map(str::to_owned)
}
