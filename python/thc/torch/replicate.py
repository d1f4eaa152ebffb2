"""Sharded models: what is replicated across groups of shards is averaged through THC."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

from thc import environment, errors
from thc.group import Group
from thc.torch.feedback import FeedbackStore
from thc.torch.joining import begin_alike, join, scope_of
from thc.torch.layout import Layout
from thc.torch.peers import Peers
from thc.torch.shard import Shard

__all__ = ["Replicas", "replicate"]


class Replicas:
    """The same shard on several ranks, each with its own data; made by :func:`replicate`."""

    def __init__(self, group: Group, process_group: Any, feedback: bool) -> None:
        self.group = group
        """This shard's group: its statistics, its server."""
        self.skipped = False
        """Whether a gradient since the last look at it was not finite on some replica; the same on all of them."""
        self._peers = Peers(process_group)
        self._feedback = FeedbackStore(group) if feedback else None
        self._scope = f"replica{scope_of(group)}"
        self._shards: list[Shard] = []
        self._delivers = False

    def take(self, module: Any, names: dict[int, str]) -> None:
        """Averages a module's gradients from now on; ``names`` are those of the model's parameters."""
        shard = Shard(f"{self._scope}.{len(self._shards)}", module, names)
        if shard.replicates:
            raise errors.ConfigError(
                "this model is sharded over a mesh whose outer dimension torch itself averages: shard it over the inner one alone, "
                'fully_shard(model, mesh=mesh["shard"]), and give replicate mesh.get_group("replicate")'
            )
        self._shards.append(shard)
        module.set_all_reduce_hook(functools.partial(self._reduced, shard))

    def _reduced(self, shard: Shard, gradients: torch.Tensor) -> None:
        """What FSDP calls with a module's gradients, summed over the shards: those of the parameters that have got some."""
        if gradients.numel() == 0:
            return
        parts = shard.reduced(gradients.numel())
        if parts is None or (shard.averages and not any(part.held_back for part in parts)):
            self._average(gradients, None if parts is None else shard.layout(parts))
        else:
            # FSDP adds them to what there is already; the sum travels when that of the last of several backward passes is there.
            for part in parts:
                part.held_back = True
        if shard.averages and not self._delivers:
            self._delivers = True
            torch.autograd.Variable._execution_engine.queue_callback(self._deliver)

    def _deliver(self) -> None:
        """The end of a backward pass: averages what has been held back, also of parameters that this one did not use."""
        self._delivers = False
        for shard in self._shards:
            parts = [part for part in shard.parts if part.held_back]
            if not parts or not shard.averages:
                continue
            for part in parts:
                part.held_back = False
            grad = next((part.grad for part in parts if part.grad is not None), None)
            if grad is None:
                continue  # they were given up
            flat = torch.zeros(sum(part.size for part in parts), dtype=grad.dtype, device=grad.device)
            pieces = flat.split([part.size for part in parts])
            for part, piece in zip(parts, pieces):
                part.read(piece)
            self._average(flat, shard.layout(parts))
            for part, piece in zip(parts, pieces):
                part.write(piece)

    def _average(self, gradients: torch.Tensor, layout: Layout | None) -> None:
        """Replaces gradients by their mean over the replicas. Without a layout nobody knows whose they are, so what compression loses
        is not kept."""
        if gradients.dtype == torch.float64:
            self._peers.mean(gradients)
            return
        key = None
        if layout is not None and self._feedback is not None:
            self._feedback.settle(layout)
            key = layout.key
        direct = gradients.device.type == "cpu" and gradients.dtype == torch.float32 and gradients.is_contiguous()
        data = gradients if direct else _fetch(gradients, layout)
        try:
            self.group.allreduce(data.detach().numpy(), feedback=key)
        except (errors.NonFiniteError, errors.NormError):
            self.skipped = True
            data.fill_(float("nan"))
        if not direct:
            gradients.copy_(data, non_blocking=True)
            if gradients.device.type == "cuda":
                # The staging memory is used again, by the next backward pass.
                torch.cuda.current_stream(gradients.device).synchronize()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own: this rank's error feedback by parameter, each as FSDP has sharded it."""
        return {"feedback": {} if self._feedback is None else self._feedback.save()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called: on the same rank of as many, with the same model."""
        if self._feedback is not None:
            self._feedback.load(state["feedback"])


def _fetch(gradients: torch.Tensor, layout: Layout | None) -> torch.Tensor:
    """Gradients as f32 on the CPU."""
    if layout is None:
        return gradients.detach().to("cpu", torch.float32)
    on_gpu = gradients.device.type == "cuda"
    staging = layout.staging(gradients.device)
    staging.copy_(gradients.reshape(-1), non_blocking=on_gpu)
    if on_gpu:
        torch.cuda.current_stream(gradients.device).synchronize()
    return staging


def replicate(
    model: torch.nn.Module,
    process_group: Any,
    group: Group | None = None,
    *,
    feedback: bool = True,
    **options: Any,
) -> Replicas:
    """Averages a model that FSDP2 has sharded over its replicas, through THC; all ranks call it alike.

    ``model`` comes from ``torch.distributed.fsdp.fully_shard`` over the inner dimension of a mesh alone, and
    ``process_group`` is that of the outer one, the ranks that have the same shard::

        mesh = init_device_mesh("cuda", (hosts, 8), mesh_dim_names=("replicate", "shard"))
        fully_shard(model, mesh=mesh["shard"])
        thc.torch.replicate(model, mesh.get_group("replicate"))

    With a third, innermost dimension, tensor parallelism is applied before ``fully_shard``. All replicas begin with the parameters and
    buffers of the first one.

    FSDP sums a module's gradients over its shards as always, and each shard's part is then averaged by a group of its own:
    ``group``, or one of the parameter server that the environment names (``THC_PS``, ``THC_CONFIG``), or one whose server these ranks run themselves (``options`` as for
    :meth:`thc.Group.local`). The environment names the job of the first shard, and the k-th process group, in the order of their first ranks, has the job
    whose number is k higher. A gradient that is not
    finite becomes NaN on all replicas, and :attr:`Replicas.skipped` tells. If the server is lost, ``backward`` raises: there is no
    fall-back here. f64 gradients go through the process group.

    After ``set_requires_all_reduce(False)`` gradients are summed over the shards alone, backward pass after backward pass, and travel at the end of
    the one that follows ``set_requires_all_reduce(True)``. Parameters may get gradients in some steps and none in others, on all replicas alike.
    """
    modules = [each for each in model.modules() if hasattr(each, "set_all_reduce_hook")]
    if not modules:
        raise errors.ConfigError(
            f"replicate takes a model that torch.distributed.fsdp.fully_shard has sharded (torch 2.7 or newer), not a plain "
            f"{type(model).__name__}: for DistributedDataParallel there is thc.torch.wrap"
        )
    empty = next((name for name, p in model.named_parameters() if p.is_meta), None)
    if empty is not None:
        raise errors.ConfigError(f"the parameter {empty} is on the meta device: call replicate when model.to_empty and its first values are done")
    further = 0
    if group is None and environment.configured():
        further = _number_of(process_group)
    group = join(process_group, group, options, further=further)
    begin_alike(model, process_group)
    names = {id(p): name for name, p in model.named_parameters()}
    made = Replicas(group, process_group, feedback)
    for module in modules:
        made.take(module, names)
    return made


def _number_of(process_group: Any) -> int:
    """This process group's place among those of all ranks, in the order of their first ranks."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, min(dist.get_process_group_ranks(process_group)))
    return sorted(set(every)).index(every[dist.get_rank()])
