"""Ranks that share a host: a rail for each."""
