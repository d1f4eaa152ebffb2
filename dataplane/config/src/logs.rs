//! Events that THC's programs write on stderr: lines of text for people, or JSON objects for log collectors.
//!
//! Each event is one line. As JSON, an event has `timestamp` (RFC 3339, UTC), `level`, `message`, `target` (the module),
//! and fields of its own. The environment variable `RUST_LOG` selects the events; its default is `info`.

use clap::{Args, ValueEnum};
use std::fmt::Display;
use std::io::IsTerminal;
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

    /// Writes a line that is not an event in the text form, such as statistics.
    pub fn line(&self, line: impl Display) {
        match self.log_format {
            LogFormat::Text => eprintln!("{line}"),
            LogFormat::Json => tracing::info!("{line}"),
        }
    }

    /// Writes the reason for which a program ends.
    pub fn failure(&self, program: &str, error: impl Display) {
        match self.log_format {
            LogFormat::Text => eprintln!("{program}: {error}"),
            LogFormat::Json => tracing::error!("{error}"),
        }
    }
}
