"""What the ranks of one host do together with a bucket: each gets the sum of a share of it, and gives the mean of its share to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from thc import errors
from thc.torch.ranks.gathering import gather_numbers
from thc.torch.ranks.own_groups import backend_on, borrow
from thc.torch.ranks.peers import wait_for

T = TypeVar("T")


class HostRanks:
    """Process groups of the ranks of this host. Making one is a collective of theirs, and all ranks of the process group make as many.

    On the host the sums go over gloo, on GPUs over NCCL. What fails here is a :exc:`thc.NetworkError`.
    """

    def __init__(self, process_group: Any, ranks: Sequence[int]) -> None:
        """``ranks`` are those of ``process_group`` that are on this host."""
        self.ranks = list(ranks)
        self.place = self.ranks.index(dist.get_rank(process_group))
        """This rank's number on its host."""
        on_gpus = backend_on(process_group, "cuda") == "nccl"
        self._own = borrow(process_group, ["gloo", "gloo", *(["nccl"] if on_gpus else [])], ranks)
        self._sums, self._states = self._own.groups[:2]
        self._gpus = self._own.groups[2] if on_gpus else None

    def reduce_scatter(self, buffer: torch.Tensor, shares: Sequence[slice], meanwhile: Callable[[], None]) -> torch.Tensor:
        """The mean over the host's ranks of this rank's share of a one-dimensional buffer, of which ``shares`` are a partition. On the CPU it is
        f32, added in the order of ranks; on a GPU it has the buffer's type, and is made on the current stream."""
        own = shares[self.place]
        length, ranks = own.stop - own.start, len(shares)
        if buffer.device.type != "cpu":
            group = self._group_for(buffer.device)
            longest = _longest(shares)
            padded = torch.empty(ranks, longest, dtype=buffer.dtype, device=buffer.device)
            for row, share in zip(padded, shares):
                row[: share.stop - share.start].copy_(buffer[share])
            found = torch.empty(longest, dtype=buffer.dtype, device=buffer.device)
            self._run_checked(lambda: dist.reduce_scatter_tensor(found, padded.view(-1), op=dist.ReduceOp.AVG, group=group))
            return found[:length]
        # Older gloo has no reduce-scatter; this moves as much, and halves are added as f32.
        size = buffer.element_size()
        received = torch.empty(ranks * length, dtype=buffer.dtype)
        sent = [size * (share.stop - share.start) for share in shares]
        self._await(
            lambda: dist.all_to_all_single(
                received.view(torch.uint8), buffer.view(torch.uint8), [size * length] * ranks, sent, group=self._sums, async_op=True
            ),
            meanwhile,
        )
        total = torch.zeros(length)
        for addend in received.view(ranks, length) if length else ():
            total += addend
        return total.mul_(1.0 / ranks)

    def all_gather(self, share: torch.Tensor, buffer: torch.Tensor, shares: Sequence[slice], meanwhile: Callable[[], None]) -> None:
        """Fills a buffer with the shares of all ranks of the host: on a GPU on the current stream."""
        longest = _longest(shares)
        own = share if share.dtype == buffer.dtype else share.to(buffer.dtype)
        whole = all(each.stop - each.start == longest for each in shares)
        padded = buffer if whole else torch.empty(len(shares) * longest, dtype=buffer.dtype, device=buffer.device)
        if own.numel() < longest:
            own = torch.nn.functional.pad(own, (0, longest - own.numel()))
        if buffer.device.type == "cpu":
            self._await(
                lambda: dist.all_gather_into_tensor(padded.view(torch.uint8), own.contiguous().view(torch.uint8), group=self._sums, async_op=True),
                meanwhile,
            )
        else:
            group = self._group_for(buffer.device)
            self._run_checked(lambda: dist.all_gather_into_tensor(padded, own.contiguous(), group=group))
        if not whole:
            for row, each in zip(padded.view(len(shares), longest), shares):
                buffer[each].copy_(row[: each.stop - each.start])

    def add_up(self, numbers: torch.Tensor) -> None:
        """Replaces numbers on the CPU by their sums over the host's ranks."""
        self._run_checked(lambda: dist.all_reduce(numbers, group=self._sums))

    def gather_states(self, mine: int) -> list[int]:
        """What each rank of the host says of a bucket. On the thread that stores means, in their order."""
        return [state for (state,) in self._run_checked(lambda: gather_numbers([mine], self._states))]

    def _group_for(self, device: torch.device) -> Any:
        if self._gpus is None:
            raise errors.ConfigError(f"gradients are on {device}, and the process group has no NCCL to add them up inside the host: leave rails out")
        return self._gpus

    def _await(self, begin: Callable[[], Any], meanwhile: Callable[[], None]) -> None:
        def work() -> None:
            under_way = begin()
            wait_for(under_way.is_completed, meanwhile)
            under_way.wait()

        self._run_checked(work)

    def _run_checked(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except RuntimeError as error:
            self._own.spoil()
            raise errors.NetworkError(f"a rank of this host is gone, or does not answer: {error}") from error


def _longest(shares: Sequence[slice]) -> int:
    longest: int = max(each.stop - each.start for each in shares)
    return longest
