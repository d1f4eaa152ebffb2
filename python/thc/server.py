"""A parameter server inside this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thc import _native

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from thc.job_options import JobOptions


class Server:
    """A software parameter server with one job, on threads of this process.

    ``workers`` is how many the job has, ``cookie`` the secret with which they join. ``options`` are the other keys of
    a job, which :class:`thc.job_options.JobOptions` explains. The rest are keys of ``thc-ps`` in the same units: buffers
    and ``memory_limit`` in bytes. With ``shares``, the addresses of as many servers, this server has the slots of number
    ``share`` alone. ``inject`` is for tests: ``"loss=0.01"``.
    """

    def __init__(
        self,
        workers: int,
        cookie: int | str,
        *,
        job: int = 1,
        listen: str = "127.0.0.1:0",
        shards: int | None = None,
        pin: Sequence[int] | None = None,
        busy_poll: bool | None = None,
        recv_buffer: int | None = None,
        send_buffer: int | None = None,
        memory_limit: int | None = None,
        inject: str | None = None,
        inject_seed: int | None = None,
        share: int | None = None,
        shares: Sequence[str] | None = None,
        reserved: _native.Reserved | None = None,
        **options: Unpack[JobOptions],
    ) -> None:
        self._native = _native.Server(
            workers=workers,
            cookie=cookie,
            job=job,
            listen=listen,
            shards=shards,
            pin=pin,
            busy_poll=busy_poll,
            recv_buffer=recv_buffer,
            send_buffer=send_buffer,
            memory_limit=memory_limit,
            inject=inject,
            inject_seed=inject_seed,
            share=share,
            shares=shares,
            reserved=reserved,
            **options,
        )

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
