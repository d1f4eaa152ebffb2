"""Trainings through compressed means beside such with exact means."""
