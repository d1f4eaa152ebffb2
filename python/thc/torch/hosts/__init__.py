"""Ranks that share a host: one stream for all of them, or a rail for each."""
