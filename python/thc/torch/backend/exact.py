"""All-reduces that are not to be compressed, whatever they are of."""

from __future__ import annotations

import contextlib
import threading

__all__ = ["exact"]


class exact(contextlib.ContextDecorator):  # noqa: N801 - used like a function
    """``with thc.torch.backend.exact():`` has no all-reduce of the backend ``"thc"`` compressed that begins within, on any thread of this process.
    All ranks do so alike."""

    depth = 0
    """How many such blocks have been entered and not left."""
    _lock = threading.Lock()

    def __enter__(self) -> None:
        with exact._lock:
            exact.depth += 1

    def __exit__(self, *_: object) -> None:
        with exact._lock:
            exact.depth -= 1
