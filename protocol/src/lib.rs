//! THC wire format and state machines, without I/O.
