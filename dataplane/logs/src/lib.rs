//! What THC's programs write on stderr while they run: lines for people, or JSON objects for whoever collects logs.
//!
//! Each event is one line. As JSON it has `timestamp` (RFC 3339, UTC), `level`, `message`, `target` (the module), and the event's own
//! fields. `RUST_LOG` says which events there are (`info` unless told otherwise).
#![forbid(unsafe_code)]

use clap::{Args, ValueEnum};
use std::fmt::Display;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The flag that says it, the same in all programs.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LogFlags {
    /// Write events on stderr as lines of text, or each as a JSON object
    #[arg(long, env = "THC_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

impl LogFlags {
    /// Writes events from now on. Once in a process.
    pub fn start(&self) {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => {
                lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
            }
            LogFormat::Json => {
                lines.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
            }
        }
    }

    /// Writes a line that is no event as text, such as statistics.
    pub fn line(&self, line: impl Display) {
        match self.log_format {
            LogFormat::Text => eprintln!("{line}"),
            LogFormat::Json => tracing::info!("{line}"),
        }
    }

    /// Writes why a program ends.
    pub fn failure(&self, program: &str, error: impl Display) {
        match self.log_format {
            LogFormat::Text => eprintln!("{program}: {error}"),
            LogFormat::Json => tracing::error!("{error}"),
        }
    }
}
