"""The calls of one bucket, and what is to be done with their means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from thc import errors

__all__ = ["PendingCalls", "Over"]


class _Handle(Protocol):
    def wait(self) -> Any: ...


@dataclass
class Over:
    """A call that is over."""

    error: BaseException | None = None

    def wait(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class PendingCalls:
    """A bucket's calls, in order, and what is to be done with their means."""

    handles: list[_Handle] = field(default_factory=list)
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    def call(self, begin: Callable[[], _Handle | Any], wait: bool) -> None:
        """Begins a call, or makes it."""
        try:
            handle = begin()
        except errors.ThcError as error:
            self.handles.append(Over(error))
        else:
            self.handles.append(Over() if wait else handle)

    def wait(self) -> bool:
        """Waits for all. Whether all numbers were finite."""
        finite, failed = True, None
        for handle in self.handles:
            try:
                handle.wait()
            except (errors.NonFiniteError, errors.NormError):
                finite = False
            except BaseException as error:
                # The first, which others may only follow from.
                failed = failed or error
        if failed is not None:
            raise failed
        if finite:
            for work in self.afterwards:
                work()
        return finite
