//! Copies of the file of jobs.

use super::Book;
use crate::book_file::BookFile;
use crate::error::ControllerError;
use std::path::Path;

/// What controllers that know only format 1 would misread, and what to do about it.
fn beyond_first_format(book: &Book) -> Option<String> {
    if let Some(target) = book.drained.first() {
        let way = format!("undrain it first by `thc-controller target undrain {target}`");
        return Some(format!("drained targets, as {target} is: {way}"));
    }
    book.jobs.values().find_map(|job| {
        let name = &job.spec.name;
        let sessions = job.places.values().filter_map(|place| place.session.as_ref());
        let mut addresses = sessions.flat_map(|session| session.members.values().map(|member| member.at));
        if job.pending.is_some() {
            Some(format!(
                "changes that wait for a session to end, as that of job {name}: end the session first"
            ))
        } else if addresses.any(|at| at.is_ipv6()) {
            Some(format!("workers over IPv6, as job {name} has: end its session first"))
        } else {
            None
        }
    })
}

/// Writes a copy of a file of jobs, whose controller may run meanwhile, in this `format`, which an older
/// controller may need. Returns how many jobs are in it.
///
/// # Errors
/// As [`BookFile::read`]; [`ControllerError::State`]: there is none, that format cannot express these jobs,
/// or the copy cannot be written.
pub fn back_up(state: &Path, to: &Path, format: Option<u32>) -> Result<usize, ControllerError> {
    let read: Book = BookFile::open_existing(state)?.read()?;
    if let Some(newer) = beyond_first_format(&read).filter(|_| format == Some(1)) {
        let message = format!("format 1 knows of no {newer}");
        return Err(ControllerError::State { path: to.to_owned(), message });
    }
    BookFile::new(Some(to)).write_as(&read, format)?;
    Ok(read.jobs.len())
}

/// Makes a copy the file of jobs, while no controller has that file. Returns how many jobs are in it.
/// Sessions are over, since slots and numbers of their members may belong to others by now.
///
/// # Errors
/// As [`BookFile::read`]; [`ControllerError::StandsBy`]: a controller has the file.
pub fn restore(from: &Path, state: &Path) -> Result<usize, ControllerError> {
    let mut read: Book = BookFile::open_existing(from)?.read()?;
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
