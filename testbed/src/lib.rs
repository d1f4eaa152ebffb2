//! THC testbed: demo, tables, error figures.
