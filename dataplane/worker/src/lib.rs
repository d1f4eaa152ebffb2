//! THC worker: compressed all-reduce over a parameter server.
