"""When a test counts as hung."""

HANG = 600.0
"""Seconds without a sign of life. Limits of time in tests are for hangs, and never tell how busy the machine is: every one is this, counted from
the last thing that was seen to happen. What takes longest by itself takes 20 s on an idle machine."""
