"""A store that rank 0 keeps for as long as it has it, and the others reach."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from thc.errors import ConfigError
from thc.rendezvous import own_address
from thc.torch.ranks.gathering import Gather

__all__ = ["shared_store"]

def shared_store(rank: int, gather: Gather, patience: float, address: str | None = None) -> Any:
    """A ``TCPStore``, or nothing on a rank that does not reach it. A collective. ``address`` is this host's, by default that
    towards the master; ``patience``: seconds that a call may take."""
    store: Any = None
    where: tuple[str, int] | None = None
    if rank == 0:
        with suppress(RuntimeError, OSError, ConfigError):
            own = address or own_address(os.environ.get("MASTER_ADDR", "127.0.0.1"))
            store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=patience))
            where = own, store.port
    where = json.loads(gather.gather(json.dumps(where))[0])
    if store is None and where is not None:
        with suppress(RuntimeError, OSError):
            store = dist.TCPStore(*where, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=patience))
    # Nobody lets go of it before all have found it.
    gather.gather("")
    return store
