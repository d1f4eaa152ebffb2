"""Where ranks tell how far they are, once one of them has lost the parameter server."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

from thc.errors import ConfigError
from thc.rendezvous import own_address
from thc.torch.peers import Peers

__all__ = ["Board"]

PATIENCE = timedelta(seconds=10)


class Board:
    """A few counters in a store that rank 0 keeps.

    A rank may lose the server when others already have the last answer of a step and have gone on. They may wait for it in a
    collective of their own then, as DDP's forward pass begins with one for buffers, while it waits for them to agree. So it
    asks here, and whoever has nothing else to do answers. A step costs nothing as long as nobody asks.

    Making one is a collective. Where a rank does not reach the store, nobody ever answers it.
    """

    def __init__(self, peers: Peers) -> None:
        self._store = None
        address, port = 0, 0
        if peers.rank == 0:
            with suppress(RuntimeError, OSError, ConfigError):
                own = own_address(os.environ.get("MASTER_ADDR", "127.0.0.1"))
                self._store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
                address, port = int.from_bytes(socket.inet_aton(own), "big"), self._store.port
        ((address, port), *_) = peers.gather([address, port])
        if self._store is None and port:
            with suppress(RuntimeError, OSError):
                host = socket.inet_ntoa(address.to_bytes(4, "big"))
                self._store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=PATIENCE)
        # Nobody lets go of it before all have found it.
        peers.gather([0])
        self._round = 0
        self._asked = self._told = -1

    def ask(self, step: int) -> bool:
        """Whether some rank has completed a step that this one has not."""
        if step != self._asked:
            self._add("asked", 1)
            self._asked = step
        return self._add(f"completed/{step}", 0) > 0

    def tell(self, step: int) -> None:
        """Tells that all up to this step, exclusive, are complete here, if somebody has asked."""
        if step > self._told and step > 0 and self._add("asked", 0) > 0:
            self._add(f"completed/{step - 1}", 1)
            self._told = step

    def begin_anew(self) -> None:
        """Forgets who has asked, on all ranks alike."""
        self._round += 1

    def _add(self, key: str, amount: int) -> int:
        """Adds to a counter; what it is then. A store that is gone counts nothing."""
        if self._store is None:
            return 0
        try:
            return int(self._store.add(f"{self._round}/{key}", amount))
        except RuntimeError:
            return 0
