"""The part of an engine that chooses how each tensor travels."""
