"""One worker that is several times slower than the others: ways to train, by the clock."""
