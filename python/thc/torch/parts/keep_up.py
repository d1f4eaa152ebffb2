"""Training that does not wait for a rank that is late (THC, section 6): it is skipped, and comes back with the others' parameters."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

from thc import errors
from thc.base_group import BaseGroup
from thc.errors import ConfigError, SessionError
from thc.torch.ddp.hook import Hook
from thc.torch.ddp.wrap import hook_of
from thc.torch.engine.agreement import LOST
from thc.torch.engine.bucket import Bucket
from thc.torch.hosts.rails import RailGroup
from thc.torch.parts.part import Part
from thc.torch.ranks.gathering import Gather, shared_store
from thc.torch.ranks.peers import broadcast_tensors, time_out
from thc.torch.synchronize import tensors_of


PERIOD = 0.1
"""Seconds between two looks at whether a rank waits for the others."""


class Meetings:
    """In a store that rank 0 keeps: which ranks have stopped because they are behind, and whether the others have come to meet them."""

    def __init__(self, store: Any) -> None:
        self._store = dist.PrefixStore("meetings", store)
        self._round = 0
        self._looked = 0.0

    def stop(self, most: int) -> bool:
        """This rank is behind and waits for the others, who hear of it: if no more than so many ranks do. Whether it does."""
        if self._store.add(f"{self._round}/stopped", 1) <= most:
            return True
        self._store.add(f"{self._round}/stopped", -1)
        return False

    def lose(self) -> None:
        """This rank can go no further: it has lost the parameter server."""
        self._store.add(f"{self._round}/lost", 1)

    def arrive(self) -> None:
        """This rank has come to meet the others."""
        self._store.add(f"{self._round}/come", 1)

    def stopped_ranks(self) -> int:
        """How many ranks go no further."""
        return sum(int(self._store.add(f"{self._round}/{why}", 0)) for why in ("stopped", "lost"))

    def has_begun(self) -> bool:
        """Whether some rank has come."""
        return bool(self._store.add(f"{self._round}/come", 0) > 0)

    def is_wanted(self) -> bool:
        """Whether a rank has stopped, as of a moment ago: the store is looked into now and then only."""
        if time.monotonic() - self._looked < PERIOD:
            return False
        self._looked = time.monotonic()
        return self.stopped_ranks() > 0

    def end(self) -> None:
        """They have met: on all ranks alike."""
        self._round += 1


class Pace(Part):
    """What an engine sees of this. In a job with a quorum a rank that comes too late has no mean, and is behind until it
    gets the others' parameters.

    A step ends with a call of two numbers: whether some rank waits to be met, and whether gradients were not finite. Every rank that has the result of
    that call has the same as all others who have it, so all of these stop after the same step; a rank without it is behind and stops, too.
    """

    def __init__(self, group: BaseGroup, meetings: Meetings) -> None:
        self._group, self._meetings = group, meetings
        self.error: errors.ThcError | None = None
        """Why the parameter server counts as lost, if it does."""
        self.begin_anew()

    def restart(self, step: int) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """All have met, and are alike."""
        self.behind = self.is_due = False
        """Whether this rank lacks part of a mean; whether all are to meet before the next step."""
        self.error = None
        self._lost = self._group.stats().lost

    def _lose(self, error: errors.ThcError) -> None:
        self.behind, self.error = True, error

    def end(self, bucket: Bucket, error: BaseException | None, nonfinite: bool) -> bool:
        is_lost = isinstance(error, LOST)
        if isinstance(error, LOST):
            self._lose(error)
            with bucket.on_stream():
                bucket.buffer.zero_()
        if bucket.is_last and error is None and self.error is None:
            self._end_step(nonfinite)
        return is_lost

    def _end_step(self, nonfinite: bool) -> None:
        call = np.array([self._meetings.is_wanted(), nonfinite], np.float32)
        try:
            self._group.allreduce(call, mode="raw")
        except LOST as error:
            self._lose(error)
            return
        lost, self._lost = self._lost, self._group.stats().lost
        self.behind |= self._lost > lost
        self.is_due = bool(call[0] > 0)
        # Whoever was in time has failed, or has not, as all others. The share is of those.
        self.behind |= nonfinite and bool(call[1] < 0.999)


PATIENCE = 10.0
"""Seconds that the store may take to answer."""
PAUSE, LONGEST = 1.0, 64.0
"""Seconds from a rank's return until it may ask to return again: at first, and at most."""
FIRST = 3
"""Steps before a rank stops: DDP orders its buckets anew before the second, for which all ranks must be there."""

Batch = TypeVar("Batch")


class KeepUp:
    """What keeps the ranks of a model together; made by :func:`keep_up`."""

    def __init__(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer | None, scheduler: Any, hook: Hook, meetings: Meetings) -> None:
        self._model, self._optimizer, self._scheduler = model, optimizer, scheduler
        self._hook, self._meetings = hook, meetings
        self._pace = Pace(hook.group, meetings)
        hook.engine.forgo_means(self._pace)
        self._group = model.process_group
        self._quorum = hook.group.job.quorum
        self._patience = time_out(model.process_group).total_seconds()
        self._ahead = 0
        self._pause, self._returned = PAUSE, -LONGEST
        self._has_stopped = False
        self._durations: deque[float] = deque(maxlen=8)
        self.skipped = 0
        """Steps of the others that this rank has left out, to be where they are."""
        self.meetings = 0
        """How often the ranks have met, since one of them was behind."""

    @property
    def behind(self) -> bool:
        """Whether this rank lacks a mean that the others have, and so has other parameters."""
        return self._pace.behind

    def steps(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches that this rank trains with: all, but as many as the others did without it. One backward pass for each."""
        for batch in batches:
            if not self._ahead:
                self._boundary()
            if self._ahead:
                self._ahead -= 1
                continue
            began = time.monotonic()
            yield batch
            self._durations.append(time.monotonic() - began)

    def finish(self) -> None:
        """After the last step: all ranks call it. They have the same parameters then, those of whoever has done most steps."""
        while not self._meet(finished=True):
            pass

    def _boundary(self) -> None:
        """Between two steps: meets the others if one of them is behind."""
        pace, hook = self._pace, self._hook
        if hook.fallback_active:
            return
        if pace.is_due or (pace.behind and self._meetings.has_begun()):
            self._meet()
        elif pace.error is not None:
            if not self._has_stopped:
                self._meetings.lose()
            if not self._others_come(self._patience):
                raise SessionError(
                    f"this rank is behind, and the others have not come to meet it for {self._patience:.0f} s, the process group's time-out: are all there?"
                )
            self._meet()
        elif pace.behind and hook.begun >= FIRST and self._stops():
            # Two steps are time enough for the others to hear of this rank and to come. If they do not, another rank is late, and they have
            # no quorum without this one: it makes a step with them, and waits for them again.
            if self._others_come(PERIOD + 2 * min(self._durations, default=PERIOD)):
                self._meet()

    def _stops(self) -> bool:
        """Whether this rank waits for the others, who hear of it."""
        if not self._has_stopped and time.monotonic() > self._returned + self._pause:
            self._has_stopped = self._meetings.stop(self._hook.group.workers - self._quorum)
        return self._has_stopped

    def _others_come(self, patience: float) -> bool:
        """Waits until the others come to meet this rank; if they have lost the server, they stop as well. Whether they do within so many seconds."""
        until = time.monotonic() + patience
        while not self._meetings.has_begun() and self._meetings.stopped_ranks() < self._hook.group.workers:
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def _meet(self, finished: bool = False) -> bool:
        """All ranks are between two steps, and go on alike. Whether all have finished."""
        pace, hook = self._pace, self._hook
        was_behind = pace.behind
        self._meetings.arrive()
        tensors = [] if self._optimizer is None else tensors_of(self._optimizer)
        sees = hook.group.find_server()
        mine = [hook.steps, was_behind, sees, finished, len(tensors)]
        told: list[list[int]] = hook.engine.ask(lambda: hook.peers.gather(mine))
        steps = [row[0] for row in told]
        ranks = range(len(told))
        source = max(ranks, key=lambda rank: (not told[rank][1], steps[rank], -rank))
        newest = steps[source]
        if len(set(steps)) > 1 or any(row[1] for row in told):
            self.meetings += 1
            self._copy(source, tensors, all(row[4] == told[source][4] for row in told))
            self._ahead += max(0, newest - hook.steps)
            self.skipped += max(0, newest - hook.steps)
            if was_behind:
                soon = time.monotonic() < self._returned + 2 * self._pause
                self._pause = min(LONGEST, 2 * self._pause) if soon else PAUSE
                self._returned = time.monotonic()
            hook.engine.ask(pace.begin_anew)
            hook.engine.meet(newest, all(row[2] for row in told), was_behind)
        self._meetings.end()
        self._has_stopped = False
        return all(row[3] for row in told)

    def _copy(self, source: int, tensors: list[torch.Tensor], alike: bool) -> None:
        """Gives all ranks the parameters and buffers of one, with its optimizer's and scheduler's state."""
        source = dist.get_global_rank(self._group, source)
        module, optimizer = self._model.module, self._optimizer
        with torch.no_grad():
            broadcast_tensors([*module.parameters(), *module.buffers(), *(tensors if alike else [])], source, self._group)
        state: dict[str, Any] = {}
        if optimizer is not None:
            # Its tensors may be where those of others are not, before the first step.
            state["optimizer"] = None if alike else optimizer.state_dict()
            state["groups"] = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        if self._scheduler is not None:
            state["scheduler"] = self._scheduler.state_dict()
        # On the CPU: another rank has another GPU.
        box = [tree_map_only(torch.Tensor, torch.Tensor.cpu, state)]
        dist.broadcast_object_list(box, source, group=self._group)
        if dist.get_rank() == source:
            return
        found = box[0]
        if optimizer is not None:
            if found["optimizer"] is not None:
                optimizer.load_state_dict(found["optimizer"])
            for group, settings in zip(optimizer.param_groups, found["groups"]):
                group.update(settings)
        if self._scheduler is not None:
            self._scheduler.load_state_dict(found["scheduler"])


def keep_up(model: DistributedDataParallel, optimizer: torch.optim.Optimizer | None = None, scheduler: Any = None) -> KeepUp:
    """Trains at the pace of a quorum: no step waits for a rank that is late. All ranks call it alike, after :func:`thc.torch.wrap` in a job
    with a quorum (docs/pytorch.md)::

        model = thc.torch.wrap(DistributedDataParallel(model), join=thc.torch.Join(server={"quorum": 7}))   # of 8 ranks
        keep = thc.torch.keep_up(model, optimizer, scheduler)
        for batch in keep.steps(loader):
            loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        keep.finish()                                                                           # the same parameters on all ranks

    A mean is that of the ranks that were in time, the same bits for all that have it. A rank that was too late lacks it: that rank stops before its next
    step, the others come to meet it, and it goes on from their parameters, optimizer and scheduler, at their step. A rank that is late again at once
    waits twice as long until it returns, for up to a minute, and trains by itself meanwhile, without effect.
    """
    hook = hook_of(model)
    job = hook.group.job
    if isinstance(hook.group, RailGroup):
        raise ConfigError("with rails a host's ranks complete each other's means, so all of them would be late: wrap(model, rails=False)")
    if hook.group.sums_in_lanes or job.quorum >= job.workers:
        raise ConfigError(
            f"the job waits for all of its {job.workers} workers, so nobody is skipped: give it a quorum, thc.torch.Join(server={{'quorum': {max(1, job.workers - 1)}}}); "
            "a quorum has one server, and no shares"
        )
    buffers = next(model.module.buffers(), None) is not None
    for wrong, what, way in (
        (model.find_unused_parameters, "find_unused_parameters=True", "find_unused_parameters=False"),
        (model.broadcast_buffers and buffers, "broadcast_buffers=True, and the model has buffers", "broadcast_buffers=False"),
        (any(p.dtype == torch.float64 for p in model.module.parameters()), "parameters of f64", "f32"),
        (hook.compares, "check_replicas", "thc.torch.check_replicas after keep.finish()"),
    ):
        if wrong:
            raise ConfigError(f"{what}: each step would have a collective of the process group, which waits for ranks that are late; use {way}")
    rank = dist.get_rank(model.process_group)
    gather = Gather(model.process_group)
    store = shared_store(rank, gather, PATIENCE)
    if "" in gather.gather("" if store is None else "found"):
        raise ConfigError("some rank does not reach the store of rank 0: check MASTER_ADDR")
    return KeepUp(model, optimizer, scheduler, hook, Meetings(store))
