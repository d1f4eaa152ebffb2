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

/// The variables of all programs and of the Python package, without `THC_`; those of tests and benchmarks begin as in
/// [`PREFIXES`].
const VARIABLES: &str = "ADDRESS BIND BMV2 CONFIG CONTROLLER CONTROLLER_CA CONTROLLER_CERT CONTROLLER_KEY COOKIE DPDK \
    GENERATE INJECT INJECT_SEED IO JOB JOIN_TIMEOUT LOG LOG_FORMAT METHOD MIN_RTO MODEL_SECRET PATIENCE PORT PS PS_PROGRAM \
    RANKS_PER_NODE RECV_BUFFER SEED SEND_BUFFER THREADS TIMEOUT WORKER WRITE";
/// Beginnings of further variables.
const PREFIXES: [&str; 14] = [
    "BACKEND_",
    "BENCH_",
    "BMV2_",
    "CHURN",
    "FUZZ",
    "INSTALLED",
    "KILLS",
    "NOT_RUN",
    "PYTHON",
    "REQUIRE",
    "TEST_",
    "TRACES",
    "TWO_",
    "UNDER_",
];

/// `true` for a variable that begins with `THC_` and that nothing reads. Kubernetes makes variables with the port of each service.
fn is_unknown(variable: &str) -> bool {
    let Some(name) = variable.strip_prefix("THC_") else { return false };
    let is_of_service =
        variable.contains("_SERVICE_") || variable.contains("_PORT_") || name.ends_with("_PORT");
    !is_of_service
        && !VARIABLES.split(' ').any(|known| known == name)
        && !PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether events have colours: on a terminal that shows them, if nobody objects (<https://no-color.org>).
fn has_colours() -> bool {
    let set = |name| std::env::var_os(name).unwrap_or_default();
    io::stderr().is_terminal() && set("NO_COLOR").is_empty() && set("TERM") != "dumb"
}

/// Prints text and a line break on stdout, with one write, so that the lines of several processes do not mix. A reader that
/// has gone, such as `head`, is no failure.
///
/// # Errors
/// Standard output cannot be written, for example because a disk is full.
pub fn print(text: impl Display) -> io::Result<()> {
    let text = format!("{text}\n");
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
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
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let unknown: Vec<String> = names.filter(|name| is_unknown(name)).collect();
        if !unknown.is_empty() {
            tracing::warn!("nothing of THC reads the variable {}: is it misspelt?", unknown.join(", "));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_unknown() {
        for unknown in ["THC_THREDS", "THC_", "THC_Worker", "THC_COOKIES", "THC_PS_PORTT"] {
            assert!(is_unknown(unknown), "{unknown}");
        }
        for known in [
            "THC_WORKER",
            "THC_BACKEND_LANE",
            "THC_CONTROLLER_SERVICE_HOST",
            "THC_PORT_9000_UDP",
            "THC_METHOD",
            "PATH",
        ] {
            assert!(!is_unknown(known), "{known}");
        }
    }
}
