//! The capture of a run, whole also if a signal ends it.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use thc_transport::{Capture, CaptureConfig};

/// Makes the file. From now on a signal that ends the process waits for the record being written.
pub fn open(config: &CaptureConfig) -> anyhow::Result<Capture> {
    let capture = Capture::create(config)?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot handle signals")?;
    let closing = capture.clone();
    std::thread::Builder::new().name("thc-capture".into()).spawn(move || {
        for signal in signals.forever() {
            closing.close();
            // What the signal would have done without all this; it does not return.
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(capture)
}
