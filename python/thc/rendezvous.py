"""How ranks find the parameter server that rank 0 has started."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any, Protocol

from thc.errors import ConfigError, ServerError, ThcError
from thc.server import Server

__all__ = ["Meeting", "Store", "meet"]

_groups = itertools.count()
"""Every rank makes its local groups in the same order: so the count tells them apart."""


class Store(Protocol):
    """What a ``torch.distributed.Store`` can do of this: ``get`` waits until the key is there."""

    def set(self, key: str, value: str) -> Any: ...

    def get(self, key: str) -> bytes: ...


@dataclass(frozen=True)
class Meeting:
    """Where to join."""

    ps: str
    job: int
    cookie: int | str
    server: Server | None
    """On rank 0."""


def meet(
    rank: int,
    world_size: int,
    store: Store | None,
    address: str | None,
    port: int | None,
    cookie: int | str | None,
    options: dict[str, Any],
) -> Meeting:
    """Rank 0 starts the server, the others learn where it is."""
    index = next(_groups)
    job = int(options.get("job", 1))
    if cookie is None:
        cookie = os.environ.get("THC_COOKIE")
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    address = address or os.environ.get("THC_ADDRESS")
    if store is None:
        port = port if port is not None else _derived_port(index)
        cookie = cookie if cookie is not None else _derived_cookie(master, index)
        if rank > 0:
            return Meeting(f"{address or master}:{port}", job, cookie, None)
        own = address or _own_address(master)
        return _start(world_size, own, port, job, cookie, options)
    key = f"thc/local/{index}"
    if rank > 0:
        found = json.loads(store.get(key))
        if "error" in found:
            raise ServerError(f"rank 0 could not start the parameter server: {found['error']}")
        return Meeting(found["ps"], job, found["cookie"], None)
    cookie = cookie if cookie is not None else secrets.randbits(32)
    try:
        own = address or _own_address(master)
        meeting = _start(world_size, own, port or 0, job, cookie, options)
    except ThcError as error:
        store.set(key, json.dumps({"error": str(error)}))
        raise
    store.set(key, json.dumps({"ps": meeting.ps, "cookie": cookie}))
    return meeting


def _start(
    world_size: int, own: str, port: int, job: int, cookie: int | str, options: dict[str, Any]
) -> Meeting:
    options = {"listen": f"{own}:{port}", **options, "job": job}
    server = Server(world_size, cookie, **options)
    return Meeting(server.address, job, cookie, server)


def _derived_port(index: int) -> int:
    text = os.environ.get("THC_PORT") or os.environ.get("MASTER_PORT")
    if text is None:
        raise ConfigError(
            "the ranks have no port to meet at: give port= or store=, or set MASTER_PORT as torchrun does"
        )
    return int(text) + index


def _derived_cookie(master: str, index: int) -> int:
    """The same on all ranks of a run, another one for other runs: it keeps out strays, not attackers."""
    parts = (master, os.environ.get("MASTER_PORT"), os.environ.get("TORCHELASTIC_RUN_ID"), index)
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")


def _source_towards(host: str) -> str:
    """This machine's address on the way to a host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        found: str = probe.getsockname()[0]
        return found


def _own_address(master: str) -> str:
    """Rank 0's address as the other ranks see it."""
    several_hosts = os.environ.get("LOCAL_WORLD_SIZE", "") != os.environ.get("WORLD_SIZE", "")
    try:
        own = _source_towards(master)
        # Debian gives a host's own name the address 127.0.1.1.
        if own.startswith("127.") and several_hosts and master not in ("127.0.0.1", "localhost"):
            own = _source_towards("192.0.2.1")
    except OSError as error:
        raise ConfigError(f"MASTER_ADDR {master!r}: {error}; set THC_ADDRESS to this host's address") from error
    return own
