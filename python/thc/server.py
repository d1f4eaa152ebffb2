"""A parameter server inside this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from thc import _native

__all__ = ["Server"]


class Server:
    """A software parameter server with one job, on threads of this process.

    ``workers`` is how many the job has, ``cookie`` the secret with which they join. The rest are the keys of
    ``thc-ps``, in the same units: ``fraction`` is a number or text like ``"1/32"``, ``deadline`` seconds or text
    like ``"200ms"``, buffers and ``memory_limit`` bytes. ``tables`` are further lookup tables that a plan may choose, each as
    text like ``"bits=2"`` or ``"bits=2,lane=4"``. ``down=4`` has sums told in 4 bits. With ``shares``, the addresses of as many servers, it serves the
    slots of number ``share`` alone. ``inject`` is for tests: ``"loss=0.01"``.
    """

    def __init__(
        self,
        workers: int,
        cookie: int | str,
        *,
        job: int = 1,
        listen: str = "127.0.0.1:0",
        quorum: int | None = None,
        bits: int | None = None,
        granularity: int | None = None,
        fraction: float | str | None = None,
        lane: int | None = None,
        down: int | None = None,
        tables: Sequence[str] | None = None,
        slots: int | None = None,
        norm_slots: int | None = None,
        block: int | None = None,
        policy: str | None = None,
        deadline: float | str | None = None,
        seed: int | str | None = None,
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
    ) -> None:
        self._native = _native.Server(
            workers=workers,
            cookie=cookie,
            job=job,
            listen=listen,
            quorum=quorum,
            bits=bits,
            granularity=granularity,
            fraction=fraction,
            lane=lane,
            down=down,
            tables=tables,
            slots=slots,
            norm_slots=norm_slots,
            block=block,
            policy=policy,
            deadline=deadline,
            seed=seed,
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
        )

    @property
    def address(self) -> str:
        """Where workers join, ``"address:port"``."""
        return self._native.address

    def stats(self) -> dict[str, Any]:
        """All counters, as ``thc-ps --stats-json`` writes them."""
        found: dict[str, Any] = json.loads(self._native.stats_json())
        return found

    def close(self, linger: float | str = 0.0) -> None:
        """Stops, once all workers have left or ``linger`` seconds have passed. Again, it does nothing."""
        self._native.close(linger)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
