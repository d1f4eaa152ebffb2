//! The standby controller of a file waits until it is active, and the active one checks whether it still is.

use crate::book::Book;
use crate::error::ControllerError;
use crate::state::{ControllerState, on_disk};
use std::sync::Arc;
use std::time::Duration;

/// How often a standby checks whether the other controller is gone, and what it has changed.
const LOOK: Duration = Duration::from_millis(200);
/// How often the one that has the lock looks whether it still has it.
const CHECK: Duration = Duration::from_secs(1);

/// Becomes the writer of the file, if no other controller is, and reads it. Returns whether it is the writer
/// now.
///
/// # Errors
/// The file, or its lock, is unusable.
pub async fn try_first(shared: &ControllerState) -> Result<bool, ControllerError> {
    let file = Arc::clone(shared.book().file());
    // What is here is what is in the file, or newer.
    if file.is_writer() {
        return Ok(true);
    }
    let (first, read) = on_disk(move || {
        let first = file.take()?;
        Ok((first, file.read::<Book>()?))
    })
    .await?;
    shared.book().replace(read);
    Ok(first)
}

/// Waits until this controller is the writer of the file of jobs; returns at once if it is, or if there is no
/// file. Meanwhile it knows the file's content, so it can answer requests, and names the active controller
/// for the others. A file that cannot be read may be back in a moment: it is tried again, and the log says
/// so.
pub async fn until_first(shared: &ControllerState) {
    let mut waited = false;
    let mut complaint = String::new();
    loop {
        let why = match try_first(shared).await {
            Ok(true) => break,
            Ok(false) => shared.book().may_change().err(),
            Err(error) => {
                let text = error.to_string();
                if text != complaint {
                    tracing::warn!("{text}; trying again");
                    complaint = text;
                }
                Some(error)
            }
        };
        if let Some(why) = why {
            let text = why.to_string();
            for view in shared.views().values_mut() {
                (view.connected, view.error) = (false, text.clone());
            }
            if !waited {
                tracing::info!("{text}");
            }
        }
        waited = true;
        tokio::time::sleep(LOOK).await;
    }
    if waited {
        tracing::info!("the other controller is gone: this one has its jobs now");
    }
    for view in shared.views().values_mut() {
        view.error.clear();
    }
}

/// Waits until this controller is no longer the one that writes the file.
pub async fn until_lost(shared: &ControllerState) {
    let file = Arc::clone(shared.book().file());
    loop {
        let looked = Arc::clone(&file);
        let keeps = on_disk(move || Ok(looked.keeps())).await;
        if !keeps.unwrap_or(false) || !file.is_writer() {
            tracing::warn!(
                "somebody else has the lock of the file of jobs, or its file is gone: this controller steps down"
            );
            return;
        }
        tokio::time::sleep(CHECK).await;
    }
}
