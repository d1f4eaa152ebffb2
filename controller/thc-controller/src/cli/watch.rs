//! Again and again, until Ctrl-C.

use super::failure::Failure;
use super::terminal::print;
use std::fmt::Display;
use std::future::Future;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Moves to the top left corner, and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Shows the results of `next`, again and again, until Ctrl-C. A failure ends it if nothing was shown yet;
/// later ones are shown, since they may pass.
pub async fn watch<Fut>(every: Duration, mut next: impl FnMut() -> Fut) -> Result<(), Failure>
where
    Fut: Future<Output = Result<String, Failure>>,
{
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = false;
    loop {
        let text = async {
            ticks.tick().await;
            next().await
        };
        let text = tokio::select! {
            _ = &mut interrupted => return Ok(()),
            text = text => text,
        };
        match text {
            Ok(text) => redraw(&text)?,
            Err(failure) if shown => redraw(&format!("{}; still trying\n", failure.message))?,
            Err(failure) => return Err(failure),
        }
        shown = true;
    }
}

/// Prints in place of what was there on a terminal, elsewhere below it.
fn redraw(text: &impl Display) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() { print(&format!("{CLEAR}{text}")) } else { print(&text.to_string()) }
}
