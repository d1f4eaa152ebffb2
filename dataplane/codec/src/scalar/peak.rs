//! Additions and multiply-adds for their own sake, see `crate::peak::run`.

/// `rounds` times [`OPERATIONS`](crate::arguments::OPERATIONS) operations.
pub(crate) fn run(rounds: u32) -> f32 {
    let (zero, one) = (std::hint::black_box(0.0_f32), std::hint::black_box(1.0));
    let mut a = [zero; crate::arguments::OPERATIONS];
    for _ in 0..rounds {
        for (i, a) in a.iter_mut().enumerate() {
            // Without a unit for it a multiply-add is a function call, and no kernel of this level does many.
            *a = if i % 2 == 0 { *a + zero } else { *a * one };
        }
    }
    a.iter().sum()
}
