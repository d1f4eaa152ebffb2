//! The most that the processor can do, with which benchmarks compare kernels.

use crate::arch;
pub use crate::arguments::OPERATIONS;
use crate::isa::Isa;

/// Does `rounds` times [`OPERATIONS`] additions and multiply-adds, half each, of the current instruction set's vectors
/// ([`Isa::lanes`]), for benchmarks that compare a kernel with what the processor can do. The result must be
/// used, or the compiler removes the work.
#[must_use]
pub fn run(rounds: u32) -> f32 {
    arch::peak::run(Isa::current(), rounds)
}
