"""A parameter server inside this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thc import _native
from thc.job_options import JobOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ServerOptions(JobOptions, total=False):
    """Keys of a server besides where it listens, and those of its job. The units are those of ``thc-ps``: buffers and ``memory_limit`` in bytes. With
    ``shares``, the addresses of as many servers, this server has the slots of number ``share`` alone, and ``reserved`` is its port. ``inject`` is for
    tests: ``"loss=0.01"``."""

    shards: int | None
    pin: Sequence[int] | None
    busy_poll: bool | None
    recv_buffer: int | None
    send_buffer: int | None
    memory_limit: int | None
    inject: str | None
    inject_seed: int | None
    share: int | None
    shares: Sequence[str] | None
    reserved: _native.Reserved | None


class Server:
    """A software parameter server with one job, on threads of this process.

    ``workers`` is how many the job has, ``cookie`` the secret with which they join. ``options`` are the other keys of a job, which
    :class:`thc.job_options.JobOptions` explains, and those of :class:`thc.server.ServerOptions`.
    """

    def __init__(self, workers: int, cookie: int | str, *, job: int = 1, listen: str = "127.0.0.1:0", **options: Unpack[ServerOptions]) -> None:
        self._native = _native.Server(workers=workers, cookie=cookie, job=job, listen=listen, **options)

    @property
    def address(self) -> str:
        """Where workers join, ``"address:port"``."""
        return self._native.address

    def stats(self) -> dict[str, Any]:
        """All counters, as ``thc-ps --json`` prints them."""
        found: dict[str, Any] = json.loads(self._native.stats_json())
        return found

    def close(self, linger: float | str = 0.0) -> None:
        """Stops, once all workers have left or ``linger`` seconds have passed. Again, it does nothing."""
        self._native.close(linger)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
