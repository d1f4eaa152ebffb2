"""A store that rank 0 keeps for as long as it has it, and the others reach."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from thc.errors import ConfigError
from thc.rendezvous import addresses_among, data_address, this_host
from thc.torch.ranks.gathering import Gather

__all__ = ["shared_store"]

def shared_store(rank: int, gather: Gather, patience: float, address: str | None = None) -> Any:
    """A ``TCPStore``, or nothing on a rank that does not reach it. A collective. ``address`` is this host's, by default that
    of its gradients; ``patience``: seconds that a call may take."""
    store: Any = None
    where: tuple[str, int] | None = None
    told = [json.loads(each) for each in gather.gather(json.dumps([this_host(), _address(address)]))]
    if rank == 0:
        with suppress(RuntimeError, OSError, ConfigError):
            own = addresses_among([host for host, _ in told], [each for _, each in told])[0]
            # It listens on all addresses, of which the others' one need not be this host's own.
            store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=patience))
            where = own, store.port
    where = json.loads(gather.gather(json.dumps(where))[0])
    if store is None and where is not None:
        with suppress(RuntimeError, OSError):
            store = dist.TCPStore(*where, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=patience))
    # Nobody lets go of it before all have found it.
    gather.gather("")
    return store


def _address(given: str | None) -> tuple[str, bool]:
    try:
        return data_address(given)
    except ConfigError:
        return "127.0.0.1", True
