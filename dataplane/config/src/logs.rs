//! Events that THC's programs write on stderr: lines of text for people, or JSON objects for log collectors.
//!
//! Each event is one line. As JSON, an event has `timestamp` (RFC 3339, UTC), `level`, `message`, `target` (the module),
//! and fields of its own. The environment variable `RUST_LOG` selects the events; its default is `info`.

use clap::{Args, ValueEnum};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;

/// The form in which events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines of text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Returns `true` if stderr is a terminal that shows colours and `NO_COLOR` is not set (<https://no-color.org>).
fn has_colours() -> bool {
    let set = |name| std::env::var_os(name).unwrap_or_default();
    io::stderr().is_terminal() && set("NO_COLOR").is_empty() && set("TERM") != "dumb"
}

/// Prints lines on stdout, the last one ended if it is not. One write keeps them together where several processes share a terminal. A
/// reader that has gone, such as `head`, is no failure.
///
/// # Errors
/// Other failures, such as a full disk.
pub fn print(lines: impl Display) -> io::Result<()> {
    print_and_ask(lines).map(drop)
}

/// Prints as [`print`] does, and returns whether there still is a reader.
///
/// # Errors
/// As [`print`].
pub fn print_and_ask(lines: impl Display) -> io::Result<bool> {
    let mut text = lines.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(true),
    }
}

/// Prints a line on stderr. A closed stderr is no reason to panic.
pub fn print_error(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The flag that chooses the form of events, which is the same in all programs.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LogFlags {
    /// Write events on stderr as lines of text, or each as a JSON object
    #[arg(long, env = "THC_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

impl LogFlags {
    /// Starts to write events. A process calls this once.
    pub fn start(&self) {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        // A reader of stderr that has gone is no reason to panic.
        let lines = tracing_subscriber::fmt().log_internal_errors(false);
        let lines = lines.with_env_filter(filter).with_writer(io::stderr);
        match self.log_format {
            LogFormat::Text => {
                lines.with_ansi(has_colours()).with_target(false).init();
            }
            LogFormat::Json => {
                lines.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
            }
        }
    }

    /// Writes a line that is not an event in the text form, such as statistics.
    pub fn line(&self, line: impl Display) {
        match self.log_format {
            LogFormat::Text => print_error(line),
            LogFormat::Json => tracing::info!("{line}"),
        }
    }

    /// Writes the reason for which a program ends.
    pub fn failure(&self, program: &str, error: impl Display) {
        match self.log_format {
            LogFormat::Text => print_error(format_args!("{program}: {error}")),
            LogFormat::Json => tracing::error!("{error}"),
        }
    }
}
