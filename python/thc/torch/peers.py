"""The process group's own collectives: for what THC does not carry, and when the parameter server is lost."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

__all__ = ["Peers"]


class Peers:
    """Process groups of our own, so that calls from the lane's thread cannot mix with those of the user.

    Making one is a collective: all ranks do it in the same order.
    """

    def __init__(self, process_group: Any = None) -> None:
        whole = process_group is None or process_group is dist.group.WORLD
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        if whole:
            backend = dist.get_backend(process_group)
            self._tensors = dist.new_group(backend=backend)
            self._control = self._tensors if backend == "gloo" else dist.new_group(backend="gloo")
        else:
            # new_group wants every rank of the world, and those outside of this group know nothing of us.
            self._tensors = self._control = process_group

    def mean(self, tensor: torch.Tensor) -> None:
        """Replaces the tensor by its mean over all ranks."""
        # gloo of older releases knows no bfloat16, and sums of halves lose less in f32.
        narrow = tensor.dtype in (torch.bfloat16, torch.float16) and tensor.device.type == "cpu"
        work = tensor.float() if narrow else tensor
        work.div_(self.size)
        dist.all_reduce(work, group=self._tensors)
        if narrow:
            tensor.copy_(work)

    def gather(self, numbers: list[int]) -> list[list[int]]:
        """Every rank's numbers."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        if dist.get_backend(self._control) == "nccl":
            mine = mine.cuda()
        all_numbers = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(all_numbers, mine, group=self._control)
        return [theirs.tolist() for theirs in all_numbers]
