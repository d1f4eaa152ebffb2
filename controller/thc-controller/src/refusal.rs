//! Why a request is refused.

use tonic::{Code, Status};

/// A refusal: the kind, and what is wrong with its mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// As gRPC has it.
    pub code: Code,
    /// The reason in words.
    pub message: String,
}

impl Refusal {
    /// The request is wrong.
    #[must_use]
    pub fn invalid(message: String) -> Refusal {
        Refusal { code: Code::InvalidArgument, message }
    }

    /// There is no such thing.
    #[must_use]
    pub fn not_found(message: String) -> Refusal {
        Refusal { code: Code::NotFound, message }
    }

    /// There is one already.
    #[must_use]
    pub fn exists(message: String) -> Refusal {
        Refusal { code: Code::AlreadyExists, message }
    }

    /// There is no room.
    #[must_use]
    pub fn full(message: String) -> Refusal {
        Refusal { code: Code::ResourceExhausted, message }
    }

    /// Not as things stand.
    #[must_use]
    pub fn not_now(message: String) -> Refusal {
        Refusal { code: Code::FailedPrecondition, message }
    }

    /// A target is not there, or refuses.
    #[must_use]
    pub fn unavailable(message: String) -> Refusal {
        Refusal { code: Code::Unavailable, message }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        Status::new(refusal.code, refusal.message)
    }
}
