"""What is waited for in place of a future: means."""

from __future__ import annotations

import threading

__all__ = ["Arrival"]


class Arrival:
    """Something that will be there, or has failed."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._error: BaseException | None = None

    def set_result(self, error: BaseException | None) -> None:
        self._error = error
        self._set.set()

    def wait(self) -> None:
        """Raises what went wrong."""
        self._set.wait()
        if self._error is not None:
            raise self._error
