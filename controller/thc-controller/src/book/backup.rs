//! Copies of the file of jobs.

use super::Book;
use crate::book_file::BookFile;
use crate::error::ControllerError;
use std::path::Path;

/// Writes a copy of a file of jobs, whose controller may run meanwhile; how many jobs are in it. `format`: as an older controller reads it.
///
/// # Errors
/// As [`BookFile::read`]; [`ControllerError::State`]: there is none, that format has no words for these jobs, or the copy
/// cannot be written.
pub fn back_up(state: &Path, to: &Path, format: Option<u32>) -> Result<usize, ControllerError> {
    let read: Book = BookFile::existing(state)?.read()?;
    let newer = |job: &&super::Job| job.spec.members.is_some() || job.next.is_some();
    if let Some(job) = read.jobs.values().find(newer).filter(|_| format == Some(1)) {
        return Err(ControllerError::State {
            path: to.to_owned(),
            message: format!(
                "format 1 knows of no members that come and go, as job {} has: delete it first",
                job.spec.name
            ),
        });
    }
    BookFile::new(Some(to)).write_as(&read, format)?;
    Ok(read.jobs.len())
}

/// Makes a copy a controller's file of jobs, while no controller has that; how many jobs are in it. Sessions are over: what their
/// members were told may be others' by now.
///
/// # Errors
/// As [`BookFile::read`]; [`ControllerError::StandsBy`]: a controller has the file.
pub fn restore(from: &Path, state: &Path) -> Result<usize, ControllerError> {
    let mut read: Book = BookFile::existing(from)?.read()?;
    for place in read.jobs.values_mut().flat_map(|job| job.places.values_mut()) {
        (place.session, place.earlier) = (None, None);
    }
    let file = BookFile::new(Some(state));
    if !file.take()? {
        file.may_write()?;
    }
    // What is there may be damaged: it gives way, whatever it is.
    file.overwrite(&read)?;
    Ok(read.jobs.len())
}
