"""What an all-reduce is given: an array, a key of its error feedback, a plan."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thc.errors import ConfigError

Plan = Sequence[tuple[int, int | str]]
"""Spans of an array, each with its length and the id of one of the job's tables, or ``"raw"``."""

Array = npt.NDArray[Any]


def feedback_key(key: int | str | None) -> int | None:
    """The number of a key: text is hashed (FNV-1a, 64 bits), the same everywhere."""
    if key is None or isinstance(key, int):
        return key
    number = 0xCBF2_9CE4_8422_2325
    for byte in key.encode():
        number = ((number ^ byte) * 0x0100_0000_01B3) & 0xFFFF_FFFF_FFFF_FFFF
    return number


def as_f32(array: Array) -> npt.NDArray[np.float32]:
    """The array itself if the library can work on it, or a copy that it can work on."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"an all-reduce needs a NumPy array of floating point numbers, not {kind}")
    if not array.flags.writeable:
        raise ValueError("the array is read-only, and an all-reduce overwrites it: give a copy")
    return np.ascontiguousarray(array, dtype=np.float32)


def spans_of(plan: Plan) -> list[tuple[int, int | None]]:
    """A plan as the library takes it: no table is RAW."""
    spans: list[tuple[int, int | None]] = []
    for length, choice in plan:
        if isinstance(choice, str) and choice != "raw":
            raise ConfigError(f'choice {choice!r}: give the id of one of the job\'s tables, or "raw"')
        number = None if isinstance(choice, str) else operator.index(choice)
        if operator.index(length) < 1 or (number is not None and not 0 <= number <= 255):
            raise ConfigError(f"span of {length} coordinates as {choice!r}: lengths are at least 1, ids 1 to 255")
        spans.append((operator.index(length), number))
    return spans
