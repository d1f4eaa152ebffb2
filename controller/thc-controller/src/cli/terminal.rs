//! Output, confirmation and failures of commands.

use serde::Serialize;
use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// Asks whether to go on. Without a terminal the error names the flag to give instead.
pub(super) fn ask(question: &str, instead: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::error(format!("there is no terminal to confirm this on: {instead}")));
    }
    print(&format!("{question} [y/N] "))?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "yes" | "Y" => Ok(()),
        _ => Err(Failure::error("nothing was changed")),
    }
}

/// Prints text on stdout. The command goes on without a reader that has gone, such as `head`.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::error(format!("cannot write to standard output: {error}"))),
    }
}

/// Prints a message as JSON.
pub(super) fn print_json(message: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(message).map_err(Failure::error)?;
    print(&format!("{text}\n"))
}

/// Why a command ends early.
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
