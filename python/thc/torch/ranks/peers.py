"""The process group's own collectives: for what THC does not carry, and when the parameter server is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from thc import errors
from thc.torch.ranks.gathering import Gathering, begin_gather, gather_numbers
from thc.torch.ranks.own_groups import backend_on, backends_of, borrow

PATIENCE = 0.2
"""Seconds that are waited for others before anything else is done."""


def wait_for(is_complete: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
    """Waits until something is complete. After a moment ``meanwhile`` is called now and then."""
    began, pause = time.monotonic(), 2e-5
    while not is_complete():
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
        if time.monotonic() - began > PATIENCE:
            meanwhile()


class Peers:
    """Process groups of our own, so that calls from the sequencer's thread cannot mix with those of the user.

    Making one is a collective: all ranks do it in the same order.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        if dist.get_backend(process_group) == "thc":
            raise errors.ConfigError(
                'the process group is of the backend "thc", which compresses all-reduces itself: give one of gloo or NCCL '
                '(dist.new_group(backend="gloo")), or train as with any process group'
            )
        self.given = process_group
        """The process group of the user."""
        # A gathering may be under way while tensors are averaged: they must not meet.
        on_host = backend_on(process_group, "cpu") is not None
        self.own = borrow(process_group, [backends_of(process_group), "gloo", *([] if on_host else ["gloo"])])
        self._tensors, self._control = self.own.groups[:2]
        self._host = self._tensors if on_host else self.own.groups[2]
        """For tensors of the CPU: another one if those are averaged by something that knows only GPUs."""

    def mean(self, tensor: torch.Tensor) -> None:
        """Replaces the tensor by its mean over all ranks."""
        self.begin_mean(tensor, self._tensors)(None)

    def begin_mean(self, tensor: torch.Tensor, group: Any) -> Callable[[Callable[[], None] | None], None]:
        """Has the mean on its way through a process group of these ranks. What is returned waits for it, and puts it into the tensor; while others
        are waited for, what it is given is called now and then."""
        on_host = tensor.device.type == "cpu"
        # Sums of halves lose less in f32.
        narrow = tensor.dtype in (torch.bfloat16, torch.float16) and on_host
        work = tensor.float() if narrow else tensor
        if work.is_sparse and not on_host:
            # NCCL knows none. gloo puts all ranks' coordinates together.
            work, on_host = work.cpu(), True
        if on_host and backend_on(group, "cpu") is None:
            group = self._host
        work.div_(self.size)
        handle = dist.all_reduce(work, group=group, async_op=True)

        def finish(meanwhile: Callable[[], None] | None) -> None:
            if meanwhile is not None:
                over = threading.Event()
                handle.get_future().add_done_callback(lambda _: over.set())
                while not over.wait(PATIENCE):
                    meanwhile()
            handle.wait()
            if work is not tensor:
                tensor.copy_(work)

        return finish

    def any(self, flag: bool, meanwhile: Callable[[], None]) -> bool:
        """Whether some rank's flag is set. While others are waited for, ``meanwhile`` is called now and then."""
        # The host looks at flags: they need no GPU.
        flags = torch.tensor([float(flag)])
        work = dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._host, async_op=True)
        wait_for(work.is_completed, meanwhile)
        work.wait()
        return bool(flags.item())

    def gather(self, numbers: list[int]) -> list[list[int]]:
        """Every rank's numbers."""
        return self.begin_gather(numbers).numbers()

    def gathering_apart(self) -> Callable[[list[int]], list[list[int]]]:
        """Gathers every rank's numbers, on any thread, whatever else is under way. A collective, and so is each gathering."""
        own = borrow(self.given, ["gloo"])
        return lambda numbers: gather_numbers(numbers, own.groups[0])

    def gather_objects(self, mine: Any) -> list[Any]:
        """On the first rank what every rank has, on the others nothing."""
        every: list[Any] = [None] * self.size if self.rank == 0 else []
        first = 0 if self.given is None else dist.get_global_rank(self.given, 0)
        dist.gather_object(mine, every if self.rank == 0 else None, dst=first, group=self._control)
        return every

    def begin_gather(self, numbers: list[int]) -> Gathering:
        """The same, without waiting for the others. Those that are begun complete in that order."""
        return begin_gather(numbers, self._control)
