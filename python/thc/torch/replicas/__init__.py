"""Ranks that have the same parameters, and stay so."""
