"""A worker's membership in a job: the all-reduce itself."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from thc import _native, environment, rendezvous
from thc.arguments import Array, Plan, as_f32, spans_of
from thc.base_group import BaseGroup, Pending, _open
from thc.errors import ConfigError
from thc.interfaces import bind_option
from thc.join import OWN_SERVER, Join
from thc.stats import Job, Stats, Table, Training
from thc.server import Server


class Handle(Pending):
    """An all-reduce under way, from :meth:`Group.allreduce_async`."""

    def __init__(self, native: _native.Handle, array: Array, data: npt.NDArray[np.float32]) -> None:
        self._native = native
        self._array = array
        self._data = data

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        return self._native.done()

    def wait(self) -> Array:
        """Waits for the mean, writes it into the array and returns the array.

        Raises what :meth:`Group.allreduce` raises; a second time :exc:`~thc.ClosedError`.
        """
        self._native.wait(self._data)
        if self._data is not self._array:
            self._array[...] = self._data
        return self._array


class Group(BaseGroup):
    """This process's membership in a job; making one returns when all its workers are there.

    ``ps``, ``job`` and ``cookie`` are those of ``join``, which says how to join: see :class:`thc.Join`. ``worker`` is this worker's number, 0 to
    n - 1 (0); a controller gives one to a worker that has none. Besides:

    - ``workers``: how many workers the job must have; another number is an error before anybody is waited for.
    - ``seed``: of this worker's rounding, which is then independent of the others'; by default from the job's seed and the worker's number,
      so that runs repeat bit for bit and errors of workers cancel (half of the mean's variance, docs/protocol.md, P31).
    - ``method``: ``"thc-paper"`` joins a job of that method and works as published: rounding is independent of the other workers', and compressed
      calls must give a key of ``feedback``.
    - ``threads``: threads that compute, the caller's among them; by default one less than the process has
      cores, at least 1. Where torchrun has started several ranks on a host (``LOCAL_WORLD_SIZE``), they divide the cores among them.

    Raises :exc:`~thc.JoinError` if the group cannot be joined, :exc:`~thc.ConfigError` for wrong options.
    """

    def __init__(
        self,
        ps: str | None = None,
        job: int | None = None,
        worker: int | None = None,
        cookie: int | str | None = None,
        *,
        workers: int | None = None,
        seed: int | None = None,
        method: str | None = None,
        threads: int | None = None,
        join: Join = Join(),
    ) -> None:
        self._server: Server | None = None
        self._pid = os.getpid()
        own = join.own_server()
        if own:
            raise ConfigError(f"{', '.join(own)}: these are options of a server that the workers run themselves: thc.Group.local takes them")
        place = {"ps": ps, "job": job, "worker": worker, "cookie": cookie, "workers": workers, "seed": seed, "method": method}
        keys = {**join.given(), **{key: value for key, value in place.items() if value is not None}}
        keys.pop("rails", None)
        if "ps" not in keys:
            raise ConfigError('ps is missing: give the parameter server as "host:port", or start one by thc.Group.local')
        if keys["ps"].startswith(("thc://", "thcs://")):
            for key in ("job", "cookie"):
                if key in keys:
                    raise ConfigError(f"{key} is given, and ps is {keys['ps']!r}: the controller supplies it, leave it out")
        else:
            keys = {"job": 1, "worker": 0, "cookie": os.environ.get("THC_COOKIE"), **keys}
            if keys["cookie"] is None:
                raise ConfigError("cookie is missing: give the job's cookie, or set THC_COOKIE")
        if keys.get("worker", 0) > 63:
            raise ConfigError(f"worker is {keys['worker']}: workers have the numbers 0 to 63")
        threads = environment.threads() if threads is None else threads
        self._native = _native.Group(json.dumps({**keys, **({} if threads is None else {"threads": threads})}, default=os.fspath))
        self.ps: str = keys["ps"]
        self.method = method or "default"
        told = self._native.parameters()
        self.job_number: int = told["job"]
        self.worker: int = told["worker"]
        self.workers: int = told["workers"]
        self.training = Training()
        _open.add(self)

    @classmethod
    def from_env(cls, *, join: Join = Join(), **place: Any) -> Group:
        """Joins as environment variables say: ``THC_`` before the name in capitals of any field of :class:`thc.Join` (``THC_DPDK`` as JSON), of
        ``worker``, ``seed``, ``method`` or ``threads``; or ``THC_CONFIG``, a TOML file with such keys as ``thc-worker`` has them, under them. The worker's number is
        ``THC_WORKER``, or ``RANK`` as torchrun sets it. ``join`` and ``place``, the other options of :class:`Group`, win over all."""
        keys = environment.keys() | join.given()
        if "ps" not in keys:
            raise ConfigError("THC_PS is not set: set it to the parameter server's host:port, or name a file with ps by THC_CONFIG")
        workers = None if "worker" in place else environment.world_size()
        keys |= bind_option(keys["ps"], keys)
        found: dict[str, Any] = {**{key: keys.pop(key) for key in ("worker", "seed", "threads", "method") if key in keys}, "workers": workers, **place}
        environment.fill_worker(found, keys["ps"])
        return cls(join=Join(**keys), **found)

    @classmethod
    def local(
        cls,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        store: rendezvous.Store | rendezvous.Gather | None = None,
        join: Join = Join(),
        seed: int | None = None,
        method: str | None = None,
        threads: int | None = None,
    ) -> Group:
        """Joins a group whose parameter server the ranks run themselves, on threads of their processes.

        ``rank`` and ``world_size`` are by default the variables of torchrun. The ranks find each other

        - through ``store``, a ``torch.distributed.Store``: any free ports, a random cookie. If they are on several hosts,
          which their addresses show, the first rank of each serves a share of the slots; otherwise, or with
          ``Join(colocated=False)`` or a quorum, rank 0 all; or
        - at ``MASTER_ADDR``, where rank 0 has the server whatever the number of hosts, for without a store nobody learns where
          the others are; on the UDP port of the number ``MASTER_PORT`` (the next one for each
          further group of the process), with a cookie made of these and torchrun's run id.

        ``seed``, ``method`` and ``threads`` are as for :class:`Group`; the job gets the method, too. What is left out is taken from the environment, as
        by :meth:`from_env`. Closing the group stops the server once all have left.
        """
        told = {key: value for key, value in environment.variables().items() if key != "ps"}
        seed = told.get("seed") if seed is None else seed
        method = told.get("method") if method is None else method
        join = join.filled(told)
        if join.io == "dpdk" and join.address is None:
            raise ConfigError(
                'io = "dpdk", but the ranks\' own parameter server listens on kernel UDP: start a thc-ps and name it '
                "(THC_PS), or give address=, where these devices reach the hosts' kernels"
            )
        rank = environment.number("RANK", rank, 0)
        world_size = environment.number("WORLD_SIZE", world_size, 1)
        if not 0 <= rank < world_size <= 64:
            raise ConfigError(f"rank {rank} of {world_size}: ranks are 0 to world_size - 1, at most 64")
        if method is not None:
            join = replace(join, server={**(join.server or {}), "method": method})
        meeting = rendezvous.meet(rank, world_size, store, join)
        try:
            found: dict[str, Any] = {} if join.address or store is None else {**bind_option(meeting.ps, join.given())}
            found |= {**dict.fromkeys(OWN_SERVER), "ps": meeting.ps, "job": meeting.job, "cookie": meeting.cookie}
            group = cls(worker=rank, seed=seed, method=method, threads=threads, join=replace(join, **found))
        except BaseException:
            if meeting.server is not None:
                meeting.server.close()
            raise
        group._server = meeting.server
        return group

    @property
    def server(self) -> Server | None:
        """The parameter server inside this process, or its share of one, if :meth:`local` has started one here."""
        return self._server

    @property
    def job(self) -> Job:
        """What the parameter server said about the job."""
        return Job(**{key: value for key, value in self._native.parameters().items() if key not in ("job", "worker", "tables")})

    @property
    def tables(self) -> list[Table]:
        """The job's lookup tables, which a plan may choose from; calls take the first that name none."""
        return [Table(**table) for table in self._native.parameters()["tables"]]

    def allreduce(self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None) -> Array:
        """Replaces the array by the mean over all workers, and returns it.

        All workers must call with the same length, ``mode`` and ``feedback``, in the same order. ``mode`` is
        ``"compressed"`` or ``"raw"`` (as 32-bit integers). Under ``feedback``, a key that is the same for the same
        tensor, what compression loses is kept and added to the next call. Contiguous float32 arrays
        are reduced in place; others are converted to float32 and back. Other threads run meanwhile; none may
        touch the array.

        With a ``plan``, a list of ``(length, choice)``, each span of the array travels by itself, from the first
        coordinate on: ``choice`` is the ``id`` of one of :attr:`tables`, or ``"raw"``; ``mode`` then means nothing. All
        workers must give the same plan. A span that goes raw takes its error feedback along and leaves none, so plans may
        change from call to call. A span is padded to whole packets, by fewer than 1024 coordinates.

        Raises :exc:`~thc.ConfigError` if the plan is none for this array or this job,
        :exc:`~thc.NonFiniteError` on all workers alike if one has a NaN, :exc:`~thc.SessionError` if the
        group must :meth:`rejoin`. Whatever it raises, error feedback is as before the call.
        """
        data = as_f32(array)
        spans = None if plan is None else spans_of(plan)
        self._native.call(data, mode=mode, plan=spans, feedback=self._key(mode, feedback, plan))
        if data is not array:
            array[...] = data
        return array

    def allreduce_async(self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None) -> Handle:
        """Starts an all-reduce of a copy of the array; several may be under way, and they complete in their
        order. The handle's ``wait`` writes the mean into the array."""
        data = as_f32(array)
        spans = None if plan is None else spans_of(plan)
        native = self._native.call(data, mode=mode, plan=spans, feedback=self._key(mode, feedback, plan), wait=False)
        return Handle(native, array, data)

    def stats(self) -> Stats:
        """Totals since the group was joined."""
        device, why = self.compresses_on
        return Stats(**self._native.stats(), device=device, why=why, **self.training.totals())

    def give_up(self) -> None:
        """Gives the session up: all calls under way, on whatever threads, and all later ones raise :exc:`~thc.LostError` until
        :meth:`rejoin`. It waits for nothing."""
        self._native.give_up()

    def find_server(self, patience: float | str = 0.3) -> bool:
        """Whether the parameter server answers and has this job, after at most ``patience`` seconds: for who has lost it, since :meth:`rejoin`
        waits for one that is not there. It takes no place in the job. Between calls only."""
        return self._native.find_server(patience)

    def rejoin(self) -> None:
        """Joins anew after the session has ended, as all workers must. Error feedback and totals stay."""
        self._native.rejoin()

    @property
    def _library(self) -> Any:
        return self._native

    def _leave(self, linger: float) -> None:
        _open.discard(self)
        if self._pid != os.getpid():
            return
        self._native.close()
        if self._server is not None:
            self._server.close(linger)

    def __del__(self) -> None:
        # Without this the server might stop before the group has left. After a failed __init__ there is nothing.
        if hasattr(self, "_native"):
            self.close()

    def __repr__(self) -> str:
        return f"<thc.Group worker {self.worker} of {self.workers}, job {self.job_number} at {self.ps}>"
