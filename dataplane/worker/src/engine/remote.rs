//! The engine's end of a packed call, and what it tells the caller's.

use super::compressor::{Compressor, Estimate, Measured, Numbers};
use super::loan::Loan;
use crate::WorkerError;
use crossbeam_channel::{Receiver, Sender};
use thc_codec::error::CodecError;

/// What is known of a packed call by and by.
pub(super) enum News {
    /// All norms are in: what each partition is compressed with.
    Norms(Vec<Numbers>),
    /// All results of a piece are in.
    Sums(Finished),
    /// The call is over.
    Done(Result<(), WorkerError>),
}

/// The results of a piece.
pub struct Finished {
    /// Which.
    pub piece: usize,
    /// The memory that they were to come to.
    pub sums: Box<dyn Loan>,
    /// The estimate of each packet; all 0 for packets that nobody sent because the norm is 0.
    pub estimates: Vec<Estimate>,
}

/// The engine's end of a packed call.
pub(super) struct Remote {
    pub pieces: Receiver<(usize, Box<dyn Loan>)>,
    pub news: Sender<News>,
}

impl Remote {
    /// Nobody listens any more if the caller has given the call up.
    pub fn tell(&self, news: News) {
        let _ = self.news.send(news);
    }

    pub fn norms(&self, compressor: &Compressor, parts: &[Measured]) -> Result<(), CodecError> {
        let numbers: Result<_, _> = parts.iter().map(|at| compressor.numbers(at)).collect();
        self.tell(News::Norms(numbers?));
        Ok(())
    }

    pub fn finish(&self, result: Result<(), WorkerError>) {
        self.tell(News::Done(result));
    }
}
