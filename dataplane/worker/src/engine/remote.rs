//! The engine's end of a packed call.

use super::compressor::{Compressor, Estimate, Measured, Numbers};
use super::loan::Loan;
use crate::WorkerError;
use crossbeam_channel::{Receiver, Sender};
use thc_codec::error::CodecError;

/// News for the caller of a packed call.
pub(super) enum News {
    /// All norms are in: the parameters of compressing each partition.
    Norms(Vec<Numbers>),
    /// All results of a piece are in.
    Sums(Finished),
    /// The call is over.
    Done(Result<(), WorkerError>),
}

/// The results of a piece.
pub struct Finished {
    /// Its number in the call.
    pub piece: usize,
    /// The memory that the caller gave for them.
    pub sums: Box<dyn Loan>,
    /// The estimate of each packet; all 0 for packets that were not sent because the norm is 0.
    pub estimates: Vec<Estimate>,
}

/// The engine's end of a packed call.
pub(super) struct Remote {
    pub pieces: Receiver<(usize, Box<dyn Loan>)>,
    pub news: Sender<News>,
}

impl Remote {
    /// Sends news, unless the caller has dropped the call.
    pub fn send(&self, news: News) {
        let _ = self.news.send(news);
    }

    pub fn norms(&self, compressor: &Compressor, parts: &[Measured]) -> Result<(), CodecError> {
        let numbers: Result<_, _> = parts.iter().map(|at| compressor.numbers(at)).collect();
        self.send(News::Norms(numbers?));
        Ok(())
    }

    pub fn finish(&self, result: Result<(), WorkerError>) {
        self.send(News::Done(result));
    }
}
