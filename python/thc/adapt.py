"""What to compress, and how much: policies without I/O, from measurements to choices.

- :func:`layerwise`: for each layer one of several compressions, so that all together cost the least and lose no more than a
  bound (L-GreCo, MLSys 2024).
- :func:`thc_error`, :func:`thc_bytes`: what a lookup table loses and costs, in closed form.
- :func:`fit`: what a byte costs in time, by bucket.
- :class:`ThresholdTable`: the times of a warm-up, by size of tensor: from which size on compression pays (SlimGC, section 3.3).

``thc.torch.Compression(adapt=…)`` uses them while it trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thc import _native
from thc._native import ThresholdTable as ThresholdTable

class Assignment(NamedTuple):
    """A choice for each layer."""

    choices: list[int]
    """By layer, an index into its choices."""
    cost: float
    error: float
    least_cost: float
    """No assignment within the bound costs less: this one is the best if it is ``cost``. 0 if nothing was solved."""


def _rows(table: npt.ArrayLike) -> npt.NDArray[np.float64]:
    rows = np.ascontiguousarray(table, dtype=np.float64)
    return rows if rows.ndim == 2 else rows.reshape(len(rows) if rows.ndim else 1, -1)


def layerwise(
    costs: npt.ArrayLike, errors: npt.ArrayLike, bound: float, *, exact: bool = False, steps: int | None = None
) -> Assignment:
    """For each layer the choice with which all together cost the least and lose at most ``bound``.

    ``costs`` and ``errors`` have a row for each layer and a column for each choice; errors are squared L2 norms. By default it
    is L-GreCo's dynamic program over 10,000 (``steps``) steps of the bound; ``exact`` needs no steps, and bounds what they lose.

    Raises :exc:`~thc.ConfigError` if a number is negative or not finite, or if no choices keep the bound.
    """
    return Assignment(*_native.adapt_solve(_rows(costs), _rows(errors), bound, 0 if exact else steps))


def price(costs: npt.ArrayLike, errors: npt.ArrayLike, choices: Sequence[int]) -> Assignment:
    """What given choices cost and lose: with the default ones, the error is L-GreCo's bound."""
    return Assignment(*_native.adapt_price(_rows(costs), _rows(errors), list(choices)))


class TableError(NamedTuple):
    """What a lookup table loses."""

    nmse: float
    """Squared error of the mean over all workers, over the squared norm of one's gradient."""
    granularity: int
    fraction: float
    left: float
    """What it leaves of a worker's gradient to error feedback, of squared norms. From 1 on that grows from step to step."""


MOST_LEFT = 0.5
"""A table that leaves more of a gradient is not to be chosen: what waits goes to left / (1 - left) gradients, and a worker whose gradient
is smaller than the largest one loses more of its own."""


def thc_error(
    bits: int | None, workers: int, granularity: int | None = None, fraction: float | None = None, *, lane: int = 8
) -> TableError:
    """What the table of (b, g, p) loses with n workers; without g and p the best whose sums fit ``lane`` bits; without b that of all points
    of the grid, as sums through a process group have it.

    A layer's error is its squared norm times ``nmse``, whatever the layer: after the rotation all look alike.
    """
    return TableError(*_native.adapt_thc_nmse(bits, granularity, fraction, workers, lane))


def lane_bytes(coordinates: int, lane: int | None, workers: int) -> float:
    """Bytes that a ring of n ranks carries for a tensor, each way together: sums in lanes of so many bits, or without compression for ``None``."""
    bits = 32 if lane is None else 32 / (32 // lane)
    return 2 * 2 * (workers - 1) / workers * coordinates * bits / 8


def thc_bytes(coordinates: int, bits: int | None, *, lane: int = 8, block: int = 13) -> float:
    """Bytes that a worker sends and receives for a tensor, headers from IPv4 on included: at ``bits`` per index, or without
    compression for ``None``."""
    return _native.adapt_thc_bytes(coordinates, bits, lane, block)


class Fit(NamedTuple):
    """A linear model of the seconds from the start of a step's first synchronization to the end of its last."""

    slopes: list[float]
    """By bucket, seconds per byte."""
    intercept: float
    score: float
    """R², the share of the variance of seconds that the bytes account for."""


def fit(steps: Iterable[tuple[Iterable[float], float]]) -> Fit:
    """The model of least squares through steps, each with the bytes of all its buckets and its seconds (L-GreCo, section 4)."""
    return Fit(*_native.adapt_fit([([float(each) for each in bytes], float(seconds)) for bytes, seconds in steps]))
