"""Sharded models: what is replicated across groups of shards is averaged through THC."""

from __future__ import annotations

from typing import Any

import torch

from thc import errors
from thc.group import Group
from thc.torch.joining import join, scope_of
from thc.torch.peers import Peers

__all__ = ["Replicas", "replicate"]


class Replicas:
    """The same shard on several ranks, each with its own data; made by :func:`replicate`."""

    def __init__(self, group: Group, process_group: Any, feedback: bool) -> None:
        self.group = group
        """This shard's group: its statistics, its server."""
        self.skipped = False
        """Whether a gradient since the last look at it was not finite on some replica; the same on all of them."""
        self._peers = Peers(process_group)
        self._feedback = feedback
        self._scope = f"replica{scope_of(group)}"
        self._staging: dict[int, torch.Tensor] = {}

    def average(self, module: int, gradients: torch.Tensor) -> None:
        """Replaces the gradients of a module's shard by their mean over the replicas."""
        if gradients.numel() == 0:
            return
        if gradients.dtype == torch.float64:
            self._peers.mean(gradients)
            return
        direct = gradients.device.type == "cpu" and gradients.dtype == torch.float32 and gradients.is_contiguous()
        data = gradients if direct else self._fetch(module, gradients)
        try:
            self.group.allreduce(data.detach().numpy(), feedback=f"{self._scope}.{module}" if self._feedback else None)
        except (errors.NonFiniteError, errors.NormError):
            self.skipped = True
            data.fill_(float("nan"))
        if not direct:
            gradients.copy_(data, non_blocking=True)
            if gradients.device.type == "cuda":
                # The staging memory is used again, by the next backward pass.
                torch.cuda.current_stream(gradients.device).synchronize()

    def _fetch(self, module: int, gradients: torch.Tensor) -> torch.Tensor:
        on_gpu = gradients.device.type == "cuda"
        staging = self._staging.get(module)
        if staging is None or staging.numel() != gradients.numel():
            staging = torch.empty(gradients.numel(), dtype=torch.float32, pin_memory=on_gpu)
            self._staging[module] = staging
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

    FSDP sums a module's gradients over its shards as always, and each shard's part is then averaged by a group of its own:
    ``group``, or one whose server these ranks run themselves (``options`` as for :meth:`thc.Group.local`). A gradient that is not
    finite becomes NaN on all replicas, and :attr:`Replicas.skipped` tells. If the server is lost, ``backward`` raises: there is no
    fall-back here. f64 gradients go through the process group.
    """
    modules = [each for each in model.modules() if hasattr(each, "set_all_reduce_hook")]
    if not modules:
        raise errors.ConfigError(
            f"replicate takes a model that torch.distributed.fsdp.fully_shard has sharded (torch 2.7 or newer), not a plain "
            f"{type(model).__name__}: for DistributedDataParallel there is thc.torch.wrap"
        )
    meshes = [mesh for p in model.parameters() if (mesh := getattr(p, "device_mesh", None)) is not None]
    outer = next((mesh for mesh in meshes if mesh.ndim > 1), None)
    if outer is not None:
        raise errors.ConfigError(
            f"this model is sharded over a mesh of {outer.ndim} dimensions, so torch averages its replicas itself: shard it over the "
            'inner one alone, fully_shard(model, mesh=mesh["shard"]), and give replicate mesh.get_group("replicate")'
        )
    # The environment names one job, and each shard needs one of its own.
    group = join(process_group, group, options, named=False)
    made = Replicas(group, process_group, feedback)
    for number, module in enumerate(modules):
        module.set_all_reduce_hook(lambda gradients, number=number: made.average(number, gradients))
    return made
