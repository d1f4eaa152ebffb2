"""Compression on the device that has the gradients: only indices and sums cross to the host and back."""
