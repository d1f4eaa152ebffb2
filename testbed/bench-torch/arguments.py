"""Arguments of the benchmarks, checked while the command line is read: what is wrong is one line, with exit status 2."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection
from typing import TypeVar

Number = TypeVar("Number", int, float)


def number(kind: Callable[[str], Number], least: float, above: bool = False) -> Callable[[str], Number]:
    """A finite number of at least ``least``, or ``above`` it."""

    def read(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = kind("-1")
        if not math.isfinite(value) or value < least or (above and value == least):
            whole = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r}: give {whole} {'above' if above else 'of at least'} {least:g}")
        return value

    return read


def several(one: Callable[[str], Number]) -> Callable[[str], list[Number]]:
    """Numbers, separated by commas."""
    return lambda text: [one(part) for part in text.split(",")]


def among(names: Collection[str]) -> Callable[[str], list[str]]:
    """Some of these names, separated by commas."""

    def read(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
        return chosen

    return read
