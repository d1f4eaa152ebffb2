//! Packet I/O for THC: kernel UDP sockets and a seeded simulator.
