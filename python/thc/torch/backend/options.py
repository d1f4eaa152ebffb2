"""How the backend compresses, and where it does not."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

from torch._C import _distributed_c10d as c10d

from thc.errors import ConfigError
from thc.torch.options import Compression

VARIABLES = {name: f"THC_BACKEND_{name.upper()}" for name in ("lane", "bits", "block", "min_size", "everywhere")}
"""The environment variable of each option."""

_DEFAULTS = {"lane": 8, "bits": None, "block": 13, "min_size": 1 << 16, "everywhere": 0}


_Base: Any = getattr(c10d.Backend, "Options", object)
"""What torch takes options of a backend to be, from the releases on that the backend works with."""


class Options(_Base):
    """Options of a process group of the backend ``"thc"``, for ``pg_options`` of ``init_process_group`` and ``new_group`` and for
    ``backend_override`` of a device mesh. What is left out comes from the environment, or is the default. All ranks give the same.

    - ``compression``: its ``lane`` (``THC_BACKEND_LANE``), ``bits`` (``THC_BACKEND_BITS``), ``block`` (``THC_BACKEND_BLOCK``), and ``min_size``
      (``THC_BACKEND_MIN_SIZE``, 65536 where it is not given) count here.
    - ``everywhere`` (``THC_BACKEND_EVERYWHERE``): 1 compresses all-reduces outside of backward passes, too (0). They may be of parameters or
      activations, which do not bear what gradients do.
    - ``timeout``: of a group that a device mesh makes; ``init_process_group`` and ``new_group`` have an argument of their own.
    """

    def __init__(self, compression: Compression = Compression(), *, everywhere: int | None = None, timeout: timedelta | None = None) -> None:
        if _Base is object:
            super().__init__()
        elif timeout is None:
            super().__init__("thc")
        else:
            super().__init__("thc", timeout)
        if compression.method != "default":
            raise ConfigError(f"method is {compression.method!r}, which keeps error feedback, and the backend \"thc\" keeps none: use thc.torch.wrap")
        given = compression.only('the backend "thc"', "min_size").given()
        told: dict[str, Any] = {name: _read(name) for name in VARIABLES if name not in given}
        usual = told.pop("everywhere")
        self.everywhere: int = usual if everywhere is None else everywhere
        if self.everywhere not in (0, 1):
            raise ConfigError(f"everywhere is {self.everywhere!r}: give 0 or 1")
        self.compression = replace(compression, **told)

    def numbers(self) -> dict[str, int | None]:
        """All of them, for other ranks to compare with theirs."""
        return {name: getattr(self.compression, name) for name in ("lane", "bits", "block", "min_size")} | {"everywhere": self.everywhere}

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value}' for name, value in self.numbers().items())})"


def _read(name: str) -> int | None:
    """An option from the environment, or its default."""
    text = os.environ.get(VARIABLES[name])
    if text is None:
        return _DEFAULTS[name]
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{VARIABLES[name]} is {text!r}: it must be a whole number") from None


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
