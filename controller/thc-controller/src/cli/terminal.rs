//! What a command prints on the terminal, and what it asks there.

use super::failure::Failure;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Asks whether to go on. Whoever cannot answer is told what to give instead.
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

/// Prints text on stdout. A reader that has gone, such as `head`, is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a message as JSON.
pub(super) fn print_json(message: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(message).map_err(Failure::error)?;
    print(&format!("{text}\n"))
}
