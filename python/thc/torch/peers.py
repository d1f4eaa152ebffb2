"""The process group's own collectives: for what THC does not carry, and when the parameter server is lost."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["Gathering", "Peers"]

PATIENCE = 0.2
"""Seconds that are waited for others before anything else is done."""


class Peers:
    """Process groups of our own, so that calls from the sequencer's thread cannot mix with those of the user.

    Making one is a collective: all ranks do it in the same order.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        backend = dist.get_backend(process_group)
        self._host: Any = None
        """For tensors of the CPU, if the others are averaged by something that knows only GPUs."""
        if process_group is None or process_group is dist.group.WORLD:
            self._tensors = dist.new_group(backend=backend)
            # A gathering may be under way while tensors are averaged: they must not meet.
            self._control = dist.new_group(backend="gloo")
            self._host = dist.new_group(backend="gloo") if backend == "nccl" else None
        elif "use_local_synchronization" in inspect.signature(dist.new_group).parameters:
            ranks = [dist.get_global_rank(process_group, rank) for rank in range(self.size)]
            self._tensors = dist.new_group(ranks, backend=backend, use_local_synchronization=True)
            self._control = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
            if backend == "nccl":
                self._host = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
        else:
            # This torch's new_group wants every rank of the world, and those outside of this group know nothing of us.
            self._tensors = self._control = process_group

    def mean(self, tensor: torch.Tensor) -> None:
        """Replaces the tensor by its mean over all ranks."""
        # gloo of older releases knows no bfloat16, and sums of halves lose less in f32.
        narrow = tensor.dtype in (torch.bfloat16, torch.float16) and tensor.device.type == "cpu"
        work = tensor.float() if narrow else tensor
        work.div_(self.size)
        on_host = self._host is not None and work.device.type == "cpu"
        dist.all_reduce(work, group=self._host if on_host else self._tensors)
        if narrow:
            tensor.copy_(work)

    def any(self, flag: bool, meanwhile: Callable[[], None]) -> bool:
        """Whether some rank's flag is set. While others are waited for, ``meanwhile`` is called now and then."""
        flags = torch.tensor([float(flag)])
        if dist.get_backend(self._tensors) == "nccl":
            flags = flags.cuda()
        work = dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._tensors, async_op=True)
        began, pause = time.monotonic(), 2e-5
        while not work.is_completed():
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
            if time.monotonic() - began > PATIENCE:
                meanwhile()
        work.wait()
        return bool(flags.item())

    def gather(self, numbers: list[int]) -> list[list[int]]:
        """Every rank's numbers."""
        return self.begin_gather(numbers).numbers()

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """Every rank's bytes, as many of each."""
        tensor = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        every = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(every, tensor, group=self._tensors if self._host is None else self._host)
        return [theirs.numpy().tobytes() for theirs in every]

    def begin_gather(self, numbers: list[int]) -> Gathering:
        """The same, without waiting for the others. Those that are begun complete in that order."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        if dist.get_backend(self._control) == "nccl":
            mine = mine.cuda()
        every = [torch.empty_like(mine) for _ in range(self.size)]
        return Gathering(dist.all_gather(every, mine, group=self._control, async_op=True), every)


class Gathering:
    """Numbers of all ranks, on their way."""

    def __init__(self, work: Any, every: list[torch.Tensor]) -> None:
        self._work = work
        self._every = every

    def is_complete(self) -> bool:
        """Whether they have come, or never will."""
        return bool(self._work.is_completed())

    def numbers(self) -> list[list[int]]:
        """Waits for them."""
        self._work.wait()
        return [theirs.tolist() for theirs in self._every]
