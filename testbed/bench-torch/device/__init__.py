"""Compression on a GPU: what its kernels need, and what they take."""
