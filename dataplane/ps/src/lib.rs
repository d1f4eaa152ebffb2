//! THC software parameter server.
