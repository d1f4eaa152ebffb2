"""How ranks find the parameter server that they have started: rank 0, or a rank of each host."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import socket
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from thc import _native
from thc.errors import ConfigError, ServerError, ThcError
from thc.interfaces import chosen_address, is_loopback
from thc.join import Join
from thc.server import Server

_groups = itertools.count()
"""Every rank makes its local groups in the same order: so the count tells them apart."""


class Store(Protocol):
    """What a ``torch.distributed.Store`` can do of this: ``get`` waits until the key is there."""

    def set(self, key: str, value: str) -> Any: ...

    def get(self, key: str) -> bytes: ...


@runtime_checkable
class Gather(Protocol):
    """In place of a store: what gives every rank what all gave, by rank."""

    def gather(self, value: str) -> list[str]: ...


@dataclass(frozen=True)
class Meeting:
    """Where to join."""

    ps: str
    job: int
    cookie: int | str
    server: Server | None
    """On ranks that run one, or a share of one."""


def meet(rank: int, world_size: int, store: Store | Gather | None, join: Join) -> Meeting:
    """The ranks start the server, or rank 0 does, and all learn where it is."""
    index = next(_groups)
    options: dict[str, Any] = {**(join.server or {})}
    job, port, colocated = join.job or int(options.get("job", 1)), join.port, join.colocated
    cookie = os.environ.get("THC_COOKIE") if join.cookie is None else join.cookie
    fixed = _native.method_values(options.get("method") or "default")
    if "lane" not in options and world_size * (fixed[1] if fixed else 15) > 255:
        # More workers than lanes of 8 bits can add up.
        options = {**options, "lane": 16}
    address = join.address or os.environ.get("THC_ADDRESS")
    if store is None:
        master = os.environ.get("MASTER_ADDR", "127.0.0.1")
        if colocated:
            raise ConfigError("colocated servers need a store, by which the hosts learn of each other: give store=")
        port = port if port is not None else _derived_port(index)
        cookie = cookie if cookie is not None else _derived_cookie(master, index)
        if rank > 0:
            return Meeting(_end(address or master, port), job, cookie, None)
        own = address or own_address(master)
        return _start(world_size, own, port, job, cookie, options)
    ranks = _Ranks(store, index, rank, world_size)
    met = ranks.tell(lambda: {"address": data_address(address), "cookie": cookie or secrets.randbits(32), "host": this_host()})
    cookie = met[0]["cookie"]
    addresses = addresses_among([each["host"] for each in met], [each["address"] for each in met])
    hosts = [first for first, each in enumerate(addresses) if each not in addresses[:first]]
    quorum = options.get("quorum")
    possible = len(hosts) > 1 and (quorum is None or quorum == world_size)
    if colocated is None:
        colocated = possible
    elif colocated and not possible:
        why = "all ranks are on one host" if len(hosts) < 2 else f"quorum is {quorum} of {world_size}"
        raise ConfigError(f"the servers cannot be colocated: {why}")
    if not colocated:
        meetings: list[Meeting] = []

        def start() -> dict[str, Any]:
            if rank == 0:
                meetings.append(_start(world_size, addresses[0], port or 0, job, cookie, options))
            return {"ps": meetings[0].ps} if meetings else {}

        ps = ranks.tell(start)[0]["ps"]
        return Meeting(ps, job, cookie, meetings[0].server if meetings else None)
    return _start_colocated(ranks, hosts, addresses[rank], port or 0, job, cookie, options)


def _start_colocated(
    ranks: _Ranks, hosts: list[int], address: str, port: int, job: int, cookie: int | str, options: dict[str, Any]
) -> Meeting:
    """The first rank of each host serves a share of the slots."""
    ports: list[_native.Reserved] = []

    def reserve() -> dict[str, Any]:
        if ranks.rank in hosts:
            buffers = {key: options[key] for key in ("recv_buffer", "send_buffer") if options.get(key)}
            ports.append(_native.Reserved(options.get("listen") or _listen_at(address, port), **buffers))
        return {"share": _announce(address, ports[0].address)} if ports else {}

    shares = [each["share"] for each in ranks.tell(reserve) if "share" in each]
    meetings: list[Meeting] = []

    def start() -> dict[str, Any]:
        if ports:
            place = hosts.index(ranks.rank)
            share: dict[str, Any] = {"share": place, "shares": shares, "reserved": ports[0], "shards": 1}
            server = Server(ranks.size, cookie, **{**options, **share, "listen": ports[0].address, "job": job})
            meetings.append(Meeting(shares[place], job, cookie, server))
        return {}

    ranks.tell(start)
    return Meeting(shares[0], job, cookie, meetings[0].server if meetings else None)


class _Ranks:
    """The ranks that meet. What they tell each other goes through the store."""

    def __init__(self, store: Store | Gather, group: int, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._store, self._group, self._turn = store, group, itertools.count()

    def tell(self, work: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """Tells the others what this rank has done; returns what all did, by rank. If one failed, all do."""
        failed: ThcError | None = None
        try:
            said = work()
        except ThcError as error:
            failed, said = error, {"error": str(error)}
        every = [json.loads(each) for each in self._gather(json.dumps(said))]
        if failed is not None:
            raise failed
        for rank, each in enumerate(every):
            if "error" in each:
                raise ServerError(f"rank {rank} could not start the parameter server: {each['error']}")
        return every

    def _gather(self, value: str) -> list[str]:
        if isinstance(self._store, Gather):
            return self._store.gather(value)
        prefix = f"thc/local/{self._group}/{next(self._turn)}"
        self._store.set(f"{prefix}/{self.rank}", value)
        return [self._store.get(f"{prefix}/{rank}").decode() for rank in range(self.size)]


def _start(world_size: int, address: str, port: int, job: int, cookie: int | str, options: dict[str, Any]) -> Meeting:
    """Starts a server that others reach at an address."""
    listen = options.get("listen") or _listen_at(address, port)
    try:
        server = Server(world_size, cookie, **{**options, "listen": listen, "job": job})
    except ServerError as error:
        if "is in use" in str(error) and any(served.address.endswith(f":{port}") for served in _served):
            raise ServerError(
                f"{error}. It is this process itself: a model that was wrapped before has its server there; close its hook, thc.torch.hook_of(model).close(), "
                "or give this one another port"
            ) from error
        raise
    _served.add(server)
    return Meeting(_announce(address, server.address), job, cookie, server)


_served: weakref.WeakSet[Server] = weakref.WeakSet()
"""Servers that this process has started for ranks."""


def _listen_at(address: str, port: int) -> str:
    """Where a server listens that others reach at an address: there, or on all of the host's addresses if that is none of them, as behind NAT."""
    bare = address.strip("[]")
    try:
        family, _, _, _, end = socket.getaddrinfo(bare, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(end)
    except socket.gaierror:
        # The server says what is wrong with it.
        pass
    except OSError:
        return f"[::]:{port}" if ":" in bare else f"0.0.0.0:{port}"
    return _end(bare, port)


def _announce(address: str, listening: str) -> str:
    """What others are told of a server that listens somewhere."""
    host, _, port = listening.rpartition(":")
    return _end(address, int(port)) if host in ("0.0.0.0", "[::]") else listening


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


def _end(address: str, port: int) -> str:
    """An address with a port, as it is written: one of IPv6 in brackets."""
    bare = address.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def _source_towards(host: str) -> str:
    """This machine's address on the way to a host; nothing is sent."""
    found_at = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    # IPv4 where the name has both: servers and workers choose so, too.
    family, _, _, _, end = min(found_at, key=lambda found: found[0] != socket.AF_INET)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(end)
        found: str = probe.getsockname()[0]
        return found


def data_address(given: str | None = None) -> tuple[str, bool]:
    """This host's address for gradients, and whether it is only a guess: one that is ``given``, or of the interface that NCCL or gloo is told to use, or else on the way to the master; of the default route
    where nobody has named one."""
    if given := given or os.environ.get("THC_ADDRESS"):
        return given, False
    master = os.environ.get("MASTER_ADDR")
    try:
        usual = own_address(master) if master else _source_towards("192.0.2.1")
    except (ConfigError, OSError):
        # There need not be a way to the master from everywhere.
        if (chosen := chosen_address()) is not None:
            return chosen, False
        if master:
            raise
        return "127.0.0.1", True
    chosen = chosen_address(usual)
    return chosen or usual, chosen is None and not master


def addresses_among(hosts: list[str], found: list[tuple[str, bool]]) -> list[str]:
    """The addresses at which ranks reach each other, by what tells their hosts apart and what each has found for its own. Raises
    :exc:`~thc.ConfigError` where a rank has none for other hosts."""
    addresses = [address for address, _ in found]
    if len(set(hosts)) == 1:
        return ["127.0.0.1" if guessed else address for address, guessed in found]
    if not any(guessed for _, guessed in found):
        return addresses
    alone = next((rank for rank, address in enumerate(addresses) if is_loopback(address)), None)
    if alone is not None:
        raise ConfigError(
            f"the ranks are on {len(set(hosts))} hosts, and rank {alone} has no address for the others, but {addresses[alone]}: set MASTER_ADDR on all "
            "ranks, or THC_ADDRESS on each host to the address at which the others reach it"
        )
    return addresses


def own_address(master: str) -> str:
    """This host's address as the other ranks see it, on the way to the master."""
    several_hosts = os.environ.get("LOCAL_WORLD_SIZE", "") != os.environ.get("WORLD_SIZE", "")
    try:
        own = _source_towards(master)
        # Debian gives a host's own name the address 127.0.1.1.
        if is_loopback(own) and several_hosts and not is_loopback(master):
            own = _source_towards("2001:db8::1" if own == "::1" else "192.0.2.1")
    except OSError as error:
        raise ConfigError(f"MASTER_ADDR {master!r}: {error}; set THC_ADDRESS to this host's address") from error
    return own


def this_host() -> str:
    """What processes have in common that can share memory and reach each other by a name: kernel and network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/net')}"
