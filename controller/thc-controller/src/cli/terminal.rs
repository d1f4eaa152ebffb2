//! Output, confirmation and failures of commands.

use serde::Serialize;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use thc_config::logs;

/// Asks for confirmation on the terminal.
///
/// # Errors
/// There is no terminal, whose message says what to give instead; or the answer is no.
pub(super) fn ask(question: &str, instead: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::error(format!("there is no terminal to confirm this on: {instead}")));
    }
    let mut out = std::io::stdout();
    write!(out, "{question} [y/N] ").and_then(|()| out.flush())?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "yes" | "Y" => Ok(()),
        _ => Err(Failure::error("nothing was changed")),
    }
}

/// Prints lines, if there are any.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    if text.is_empty() { Ok(()) } else { Ok(logs::print(text)?) }
}

/// Prints a message as JSON.
pub(super) fn print_json(message: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(message).map_err(Failure::error)?;
    print(&text)
}

/// An error that ends a command early.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: u8,
    pub(super) message: String,
}

impl Failure {
    /// The flags or values are wrong.
    pub(super) fn usage(message: impl Display) -> Failure {
        Failure { status: 2, message: message.to_string() }
    }

    /// It did not work.
    pub(super) fn error(message: impl Display) -> Failure {
        Failure { status: 1, message: message.to_string() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::error(error)
    }
}
