"""The part of an engine that refines means by further calls."""
