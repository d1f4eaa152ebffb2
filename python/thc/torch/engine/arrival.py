"""What is waited for in place of a future: means, and what refines them."""

from __future__ import annotations

import threading

import torch

__all__ = ["Arrival", "Further"]


class Arrival:
    """Something that will be there, or has failed."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._error: BaseException | None = None

    def set_result(self, error: BaseException | None) -> None:
        self._error = error
        self._set.set()

    def is_there(self) -> bool:
        """Whether :meth:`wait` returns at once."""
        return self._set.is_set()

    def wait(self) -> None:
        """Raises what went wrong."""
        self._set.wait()
        if self._error is not None:
            raise self._error


class Further:
    """What refines a bucket's mean."""

    def __init__(self) -> None:
        self.calls: list[tuple[torch.Tensor, Arrival]] = []
        """What is added to the mean, and when it is there."""

    def wait(self) -> None:
        """Until all of it is there."""
        for _, arrival in self.calls:
            arrival.wait()

    def is_there(self) -> bool:
        return all(arrival.is_there() for _, arrival in self.calls)
