"""How the backend compresses, and where it does not."""

from __future__ import annotations

import contextlib
import os
import threading
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from thc.errors import ConfigError

__all__ = ["VARIABLES", "Options", "exact"]

VARIABLES = {name: f"THC_BACKEND_{name.upper()}" for name in ("lane", "bits", "block", "smallest", "feedback", "everywhere")}
"""The environment variable of each option."""

_DEFAULTS = {"lane": 8, "bits": None, "block": 13, "smallest": 1 << 16, "feedback": 0, "everywhere": 0}

_BOUNDS = {"lane": (4, 16), "bits": (1, 8), "block": (10, 20), "smallest": (1, None), "feedback": (0, 1 << 20), "everywhere": (0, 1)}


def _base() -> Any:
    """What torch takes options of a backend to be."""
    if not dist.is_available():
        return object
    from torch._C import _distributed_c10d as c10d

    return getattr(c10d.Backend, "Options", None) if hasattr(c10d, "Backend") else None


_Base: Any = _base() or object


class Options(_Base):
    """Options of a process group of the backend ``"thc"``, for ``pg_options`` of ``init_process_group`` and ``new_group`` and for
    ``backend_override`` of a device mesh. What is left out comes from the environment, or is the default. All ranks give the same.

    - ``lane`` (``THC_BACKEND_LANE``): bits of a coordinate's sum on the way, 4 to 16 (8).
    - ``bits`` (``THC_BACKEND_BITS``): of an index, 1 to 8; by default every point of the grid that the lane has room for has one.
    - ``block`` (``THC_BACKEND_BLOCK``): log2 of the coordinates that are transformed together (13).
    - ``smallest`` (``THC_BACKEND_SMALLEST``): tensors of fewer coordinates travel as they are (65536).
    - ``feedback`` (``THC_BACKEND_FEEDBACK``): 0, or how many compressed all-reduces a step has (0). Then what compression loses of the k-th
      of a step is added to the k-th of the next.
    - ``everywhere`` (``THC_BACKEND_EVERYWHERE``): 1 compresses all-reduces outside of backward passes, too (0). They may be of parameters or
      activations, which do not bear what gradients do.
    - ``timeout``: of a group that a device mesh makes; ``init_process_group`` and ``new_group`` have an argument of their own.
    """

    lane: int
    bits: int | None
    block: int
    smallest: int
    feedback: int
    everywhere: int

    def __init__(
        self,
        *,
        lane: int | None = None,
        bits: int | None = None,
        block: int | None = None,
        smallest: int | None = None,
        feedback: int | None = None,
        everywhere: int | None = None,
        timeout: timedelta | None = None,
    ) -> None:
        if _Base is object:
            super().__init__()
        elif timeout is None:
            super().__init__("thc")
        else:
            super().__init__("thc", timeout)
        given = {"lane": lane, "bits": bits, "block": block, "smallest": smallest, "feedback": feedback, "everywhere": everywhere}
        for name, value in given.items():
            setattr(self, name, _check(name, value))

    def numbers(self) -> list[int]:
        """All of them, for other ranks to compare with theirs."""
        return [-1 if value is None else value for value in self._values().values()]

    def _values(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in VARIABLES}

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value}' for name, value in self._values().items())})"


def _check(name: str, given: Any) -> int | None:
    """An option that is given, or from the environment, or the default, within its bounds."""
    said, value = name, given
    if given is None:
        text = os.environ.get(VARIABLES[name])
        if text is None:
            return _DEFAULTS[name]
        said = VARIABLES[name]
        try:
            value = int(text)
        except ValueError:
            raise ConfigError(f"{said} is {text!r}: it must be a whole number") from None
    least, most = _BOUNDS[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        allowed = f"from {least} to {most}" if most is not None else f"of at least {least}"
        what = ", how many compressed all-reduces a step has, or 0" if name == "feedback" else ""
        raise ConfigError(f"{said} is {value!r}: give a whole number {allowed}{what}")
    return value


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
