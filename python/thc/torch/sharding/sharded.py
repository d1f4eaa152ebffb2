"""Models that FSDP2 shards: their reduce-scatters in lanes, as sums through the process group.

A rank's gradient is cut in as many chunks as there are ranks, and rank r gets the mean of all ranks' r-th. So each chunk is a call of its own, whose norms all
ranks know, and whose words are added up where the chunk belongs: one lane a coordinate where FSDP has 32 or 16 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from thc import _native, errors
from thc.arguments import feedback_key
from thc.torch.collective import PIECE, CollectiveGroup
from thc.torch.options import Compression

__all__ = ["ReduceScatter", "wrap_sharded"]


class _Groups:
    """The groups that add up, by the ranks that a module is sharded over; made when FSDP first names these."""

    def __init__(self, compression: Compression) -> None:
        self._compression = compression
        self._of: dict[tuple[int, ...], CollectiveGroup] = {}

    def group_of(self, process_group: Any) -> CollectiveGroup:
        ranks = tuple(dist.get_process_group_ranks(process_group))
        if ranks not in self._of:
            self._of[ranks] = CollectiveGroup(process_group, self._compression)
        return self._of[ranks]


class ReduceScatter:
    """What ``set_custom_reduce_scatter`` takes, of one module."""

    def __init__(self, groups: _Groups, name: str, feedback: bool) -> None:
        self._groups, self._name, self._feedback = groups, name, feedback

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False) -> None:
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise errors.ConfigError(f"reduce-scatter by {op}: sums in lanes are means or sums")
        adds = self._groups.group_of(group)
        whole = input_tensor.detach().to("cpu", torch.float32).contiguous()
        if whole.data_ptr() == input_tensor.data_ptr():
            # FSDP may still need it.
            whole = whole.clone()
        mean = self._mean(adds, list(whole.view(adds.workers, -1).unbind()))
        if op == dist.ReduceOp.SUM:
            mean.mul_(adds.workers)
        output_tensor.copy_(mean)

    def _mean(self, group: CollectiveGroup, chunks: list[torch.Tensor]) -> torch.Tensor:
        """The mean of this rank's chunk, which takes it. What is not finite on some rank makes it NaN on all, as without compression."""
        own, codec = chunks[group.worker], group._codec
        length = own.numel()
        keys = [feedback_key(f"{self._name}|{rank}") if self._feedback else None for rank in range(len(chunks))]
        calls: list[_native.CollectiveCall] = []
        found = []
        for chunk, key in zip(chunks, keys):
            call, norms = codec.begin(chunk.numpy(), [], key)
            calls.append(call)
            found.append(torch.from_numpy(norms))
        every = torch.stack(found)
        dist.all_reduce(every, op=dist.ReduceOp.MAX, group=group._norms)
        try:
            counts = [codec.settle(call, norms) for call, norms in zip(calls, every.numpy())]
        except (errors.NonFiniteError, errors.NormError):
            # Caller that nobody ends leave error feedback as it was.
            return own.fill_(float("nan"))
        # A chunk has fewer words where it is zero on all ranks; what is scattered is as long for each.
        most = max(sum(each) for each in counts)
        words = torch.zeros(len(chunks), most, dtype=torch.int32)
        for rank, (call, chunk) in enumerate(zip(calls, chunks)):
            at = 0
            for piece in range(len(counts[rank])):
                made = codec.compress(call, piece, _piece(chunk, piece))
                words[rank, at : at + len(made)] = torch.from_numpy(made)
                at += len(made)
        sums = torch.empty(most, dtype=torch.int32)
        if most:
            dist.reduce_scatter_tensor(sums, words.view(-1), group=group._words)
        at, mine = 0, counts[group.worker]
        for piece, count in enumerate(mine):
            codec.finish(calls[group.worker], piece, sums[at : at + count].numpy(), _piece(own, piece))
            at += count
        for call in calls:
            codec.end(call)
        group.note(length * len(chunks), len(chunks) * most + 2 * every.numel())
        return own


def _piece(chunk: torch.Tensor, number: int) -> Any:
    """Neighbouring coordinates that the codec takes together."""
    return np.asarray(chunk[number * PIECE : (number + 1) * PIECE])


def wrap_sharded(model: torch.nn.Module, *, compression: Compression = Compression()) -> torch.nn.Module:
    """Compresses the gradients of a model that ``torch.distributed.fsdp.fully_shard`` has sharded: the reduce-scatter of each module becomes one
    of sums in lanes. Returns the model. All ranks call it with the same options, after the last ``fully_shard`` and before the first backward pass.

    Of the ``compression`` that counts which the codec takes, and ``feedback``. With that each rank keeps what compression loses of its whole gradient and adds it to the
    next one: a copy of the unsharded gradients in f32 on the host. It is seldom worth that: all points of the grid have a value here, so
    that lanes of 8 bits lose little. Replicas of a sharded model (HSDP) are averaged besides by :func:`thc.torch.replicate`. Gradients on
    a GPU are compressed on the host.
    """
    modules = [(name, module) for name, module in model.named_modules() if hasattr(module, "set_custom_reduce_scatter")]
    if not modules:
        raise TypeError(
            f"no module of {type(model).__name__} is sharded: call torch.distributed.fsdp.fully_shard on it first, of a torch "
            "whose modules have set_custom_reduce_scatter"
        )
    groups = _Groups(compression.only("wrap_sharded", "feedback"))
    for name, module in modules:
        module.set_custom_reduce_scatter(ReduceScatter(groups, name or type(model).__name__, bool(compression.feedback)))
    return model
