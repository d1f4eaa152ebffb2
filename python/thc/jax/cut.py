"""How a vector is cut into partitions (docs/protocol.md, P4), as rows of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

__all__ = ["Run", "cut", "join"]

_LEAST = 1024
"""Coordinates of the smallest partition."""


@dataclass(frozen=True)
class Run:
    """Neighbouring partitions of equal length: the rows of a matrix."""

    size: int
    """Coordinates of a partition, with padding."""
    first: int
    """Its first partition, as signs and roundings number them."""
    count: int
    offset: int
    """Its first coordinate."""
    valid: int
    """Coordinates that it has; the rest of the last partition is padding."""

    def rows(self, x: jax.Array) -> jax.Array:
        """Its coordinates of a vector, a row for each partition, with zeros for padding."""
        x = x[self.offset : self.offset + self.valid]
        padding = self.count * self.size - self.valid
        if padding:
            x = jnp.concatenate([x, jnp.zeros(padding, x.dtype)])
        return x.reshape(self.count, self.size)


def cut(length: int, block: int) -> list[Run]:
    """The runs of a vector whose full partitions have 2^block coordinates: these, the rest by descending powers of two down to 1024,
    and what is left in one of 1024."""
    runs = []
    offset = first = 0
    size = 1 << block
    while offset < length:
        rest = length - offset
        while size > max(rest, _LEAST):
            size //= 2
        count = max(rest // size, 1)
        valid = min(rest, count * size)
        runs.append(Run(size, first, count, offset, valid))
        offset, first = offset + valid, first + count
    return runs


def join(runs: Sequence[Run], rows: Sequence[jax.Array]) -> jax.Array:
    """The vector of matrices of all runs, without the padding."""
    return jnp.concatenate([each.reshape(-1)[: run.valid] for run, each in zip(runs, rows)])
