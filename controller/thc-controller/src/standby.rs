//! The second controller of one file waits until it is the first.

use crate::error::ControllerError;
use crate::state::ControllerState;
use std::time::Duration;

/// How often it is looked whether the other one is gone, and what it has changed.
const LOOK: Duration = Duration::from_millis(200);

/// Waits until this controller is the one that writes the file of jobs; at once if it is, or if there is no file. Meanwhile it
/// knows what is in the file, so that it can be asked, and says whom to ask for more.
///
/// # Errors
/// The file, or its lock, is unusable.
pub async fn until_first(shared: &ControllerState) -> Result<(), ControllerError> {
    let mut waited = false;
    loop {
        if shared.book().take_over()? {
            if waited {
                tracing::info!("the other controller is gone: this one has its jobs now");
            }
            for view in shared.views().values_mut() {
                view.error.clear();
            }
            return Ok(());
        }
        if let Err(stands_by) = shared.book().may_change() {
            let text = stands_by.to_string();
            for view in shared.views().values_mut() {
                view.error.clone_from(&text);
            }
            if !waited {
                tracing::info!("{text}");
            }
        }
        waited = true;
        shared.book().reread()?;
        tokio::time::sleep(LOOK).await;
    }
}
