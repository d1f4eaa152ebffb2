"""A backend of ``torch.distributed`` named ``"thc"``: all-reduces of gradients travel compressed, whoever calls them.

::

    import thc.torch

    dist.init_process_group("thc")

:class:`Options` says what is compressed, and :func:`exact` has all-reduces exact (docs/backend.md).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from thc.errors import ConfigError
from thc.torch.backend.options import Options, exact
from thc.torch.release import release_of

__all__ = ["NAME", "Options", "exact", "register"]

NAME = "thc"

_OLDEST = (2, 7)
"""Older releases of PyTorch lose what a process group in Python returns to C++."""


def register() -> None:
    """Tells ``torch.distributed`` of the backend. ``import thc.torch`` does it."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(told: Any, options: Any) -> Any:
    """Makes a process group of what torch tells about its ranks."""
    if release_of(torch.__version__) < _OLDEST:
        raise ConfigError(f'the backend "{NAME}" needs PyTorch 2.7 or newer: update it, or use thc.torch.wrap')
    from thc.torch.backend.process_group import ThcProcessGroup

    return ThcProcessGroup(told.store, told.group_rank, told.group_size, told.timeout, options)
