//! The keys of a job for programs that are not written in Rust: names, kinds and documentation, taken from
//! the flags.

use std::any::TypeId;

use crate::values::{Fraction, Interval, Secret};
use clap::{ArgAction, Args, Command};

use crate::job::options::JobOptions;

/// The form of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeywordKind {
    /// A whole number.
    Number,
    /// A secret number, or text such as `0x1234abcd`.
    Secret,
    /// A number, or text such as `1/32`.
    Fraction,
    /// A length of time.
    Time,
    /// Text.
    Text,
}

/// A key of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyword {
    /// As in a file, and as a keyword argument.
    pub name: String,
    /// The form of its value, or of each of its values.
    pub kind: KeywordKind,
    /// `true` if it takes any number of values.
    pub is_list: bool,
    /// Its help, in a sentence or two.
    pub help: String,
}

impl JobOptions {
    /// All keys, in the order of the documentation.
    pub fn keywords() -> Vec<Keyword> {
        let command = JobOptions::augment_args(Command::new("job"));
        let keywords = command.get_arguments().map(|arg| {
            let value = arg.get_value_parser().type_id();
            let kinds = [
                (TypeId::of::<u64>(), KeywordKind::Number),
                (TypeId::of::<Secret>(), KeywordKind::Secret),
                (TypeId::of::<Fraction>(), KeywordKind::Fraction),
                (TypeId::of::<Interval>(), KeywordKind::Time),
            ];
            let kind = kinds.iter().find(|(id, _)| value == *id).map_or(KeywordKind::Text, |(_, kind)| *kind);
            let values: Vec<String> =
                arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
            let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(" or ")) };
            Keyword {
                name: arg.get_id().to_string(),
                kind,
                is_list: matches!(arg.get_action(), ArgAction::Append),
                help: arg.get_help().map(ToString::to_string).unwrap_or_default() + &values,
            }
        });
        keywords.collect()
    }
}
