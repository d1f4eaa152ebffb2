"""Models that FSDP2 has sharded: what is replicated across groups of shards is averaged through THC."""

from __future__ import annotations

import functools
import hashlib
import itertools
import time
from typing import Any

import torch

from thc import errors
from thc.base_group import BaseGroup
from thc.join import Join
from thc.torch.compression.layout import Layout, Segment
from thc.torch.engine.bucket import Arrival, Bucket
from thc.torch.engine.engine import Adapter, Engine
from thc.torch.joining import begin_alike, enter, scope_of
from thc.torch.names import named_parameters
from thc.torch.options import Compression, Options
from thc.torch.ranks.peers import Peers


class ShardedParameter:
    """This rank's part of one parameter, in one dimension padded to the largest that a rank has."""

    def __init__(self, name: str, parameter: Any) -> None:
        self.name, self.fsdp = name, parameter
        self.size: int = parameter.padded_sharded_param_size.numel()

    @property
    def grad(self) -> torch.Tensor | None:
        """Its gradient, without padding."""
        grad = self.fsdp.sharded_param.grad
        return None if grad is None else grad._local_tensor.detach()

    def place(self, flat: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        """The place of its gradient in what has padding."""
        view = flat.view(self.fsdp.padded_sharded_param_size)
        for dimension, size in enumerate(grad.shape):
            view = view.narrow(dimension, 0, size)
        return view


class Shard:
    """This rank's part of one module."""

    def __init__(self, scope: str, module: Any, names: dict[int, str]) -> None:
        """``names`` are those of the model's parameters."""
        self._scope, self._groups = scope, _groups(module)
        self._parts = [ShardedParameter(names[id(each.sharded_param)], each) for group in self._groups for each in group.fsdp_params]
        self._layouts: dict[tuple[str, ...], Layout] = {}

    def trained(self) -> list[ShardedParameter]:
        """The parameters that are not frozen."""
        return [part for part in self._parts if part.fsdp.sharded_param.requires_grad]

    def adds_later(self, gradients: torch.Tensor) -> bool:
        """Returns whether a mean may be added to these gradients, summed over the shards, after FSDP: they are those of all parameters, and it neither
        divides them after its hook nor copies them. Raises :exc:`thc.ConfigError` if a hook takes one before the backward pass is over."""
        for part in self._parts:
            if getattr(part.fsdp.sharded_param, "_post_accumulate_grad_hooks", None):
                raise errors.ConfigError(f"a hook takes the gradient of {part.name} as soon as it is accumulated, and the mean comes later: leave the hook out")
        if any(part.fsdp.offload_to_cpu for part in self._parts) or any(getattr(group, "force_sum_reduction_for_comms", False) for group in self._groups):
            return False
        return gradients.dtype in (torch.float32, torch.bfloat16) and gradients.numel() == sum(part.size for part in self.trained())

    def layout(self, parts: list[ShardedParameter]) -> Layout:
        """Their places in a gradient."""
        names = tuple(part.name for part in parts)
        if names not in self._layouts:
            ends = list(itertools.accumulate(part.size for part in parts))
            self._layouts[names] = Layout(self._scope, [Segment(part.name, end - part.size, part.size, True) for part, end in zip(parts, ends)])
        return self._layouts[names]


def _groups(module: Any) -> list[Any]:
    """What torch calls parameter groups of a module: a list from 2.10 on."""
    state = module._get_fsdp_state()
    found = getattr(state, "_fsdp_param_groups", None)
    if found is None:
        found = [state._fsdp_param_group]
    return [group for group in found if group is not None]


class Replicas(Adapter):
    """The same shard on several ranks, each with its own data; made by :func:`replicate`."""

    def __init__(self, engine: Engine, modules: list[Any], names: dict[int, str]) -> None:
        """``names`` are those of the model's parameters."""
        super().__init__(engine)
        self.skipped = False
        """Whether a gradient since the last look at it was not finite on some replica; the same on all of them."""
        self._scope = f"replica{scope_of(self.group)}"
        self._shards = [Shard(f"{self._scope}.{number}", module, names) for number, module in enumerate(modules)]
        self._travelling: list[tuple[list[ShardedParameter], Bucket, Arrival]] = []
        """The calls of the step under way, which the end of the backward pass ends."""
        self._late: list[Shard] = []
        """Those whose gradients travel when this backward pass is over."""
        self._pass = -1
        """Torch's number of the backward pass whose end delivers what is under way."""
        device = next((p.device for module in modules for p in module.parameters() if p.device.type == "cuda"), None)
        # What FSDP does after its hook waits for this stream alone, on the device.
        stream = None if device is None else torch.cuda.Stream(device)
        for module, shard in zip(modules, self._shards):
            module.set_all_reduce_hook(functools.partial(self._take, shard), stream=stream)

    def _take(self, shard: Shard, gradients: torch.Tensor) -> None:
        """What FSDP calls with a module's gradients, summed over the shards: those of the parameters that have got some."""
        if gradients.numel() == 0:
            return
        if gradients.device.type == "cuda":
            # It is FSDP's, of another stream, and torch before 2.15 may let go of it while this one works on it.
            gradients.record_stream(torch.cuda.current_stream(gradients.device))
        if self._pass != (now := torch._C._current_graph_task_id()):
            self._pass = now
            # Something is left if a backward pass has ended half-way, on all replicas.
            self._travelling, self._late = [], []
            torch.autograd.Variable._execution_engine.queue_callback(self._deliver)
        if shard.adds_later(gradients):
            # FSDP adds nothing now, and the mean is added when the backward pass is over, which goes on meanwhile.
            flat = gradients.detach().clone()
            gradients.zero_()
            self._begin(flat, shard, shard.trained())
        elif shard not in self._late:
            self._late.append(shard)

    def _begin(self, flat: torch.Tensor, shard: Shard | None, parts: list[ShardedParameter]) -> None:
        """Has gradients of some of a shard's parameters averaged, in place; without a shard the step ends."""
        arrival = Arrival()
        layout = Layout(f"{self._scope}.end", [Segment("end", 0, flat.numel(), False)]) if shard is None else shard.layout(parts)
        copy = flat.clone() if self.engine.fallback.is_enabled and not self.fallback_active else None
        bucket = Bucket(len(self._travelling), shard is None, flat, [], layout, arrival, copy).record_ready()
        self.engine.clock.produced = time.perf_counter()
        self._travelling.append((parts, bucket, arrival))
        self.engine.put(bucket)

    def _deliver(self) -> None:
        """The end of a backward pass: averages what could not be before, waits for all means, the host until they are known, the current stream until
        they are in place, and adds them to the gradients."""
        self._pass = -1
        for shard in self._late:
            found = {part: grad for part in shard.trained() if (grad := part.grad) is not None}
            if not found:
                continue
            flat = torch.cat([torch.zeros(part.size, dtype=grad.dtype, device=grad.device) for part, grad in found.items()])
            for (part, grad), piece in zip(found.items(), flat.split([part.size for part in found])):
                part.place(piece, grad).copy_(grad)
                grad.zero_()
            self._begin(flat, shard, list(found))
        if self._travelling:
            # A step ends with its last bucket, and only now it is known that no other comes: one of what all replicas must have in common.
            names = [segment.name for _, bucket, _ in self._travelling for segment in bucket.layout.segments]
            own = torch.tensor([*hashlib.sha256(repr(names).encode()).digest()[:8]], dtype=torch.float32)
            self._begin(torch.cat([own, own.square()]).to(self._travelling[-1][1].buffer.device), None, [])
        travelling, self._travelling = self._travelling, []
        try:
            for _, _, arrival in travelling:
                arrival.wait()
        finally:
            self.skipped = self.skipped or self.engine.steps.skipped
        if travelling:
            _check_alike(own, travelling[-1][1].buffer)
        for parts, bucket, _ in travelling:
            if bucket.buffer.device.type == "cuda":
                current = torch.cuda.current_stream(bucket.buffer.device)
                if bucket.stream is not None:
                    current.wait_stream(bucket.stream)
                bucket.buffer.record_stream(current)
            for part, piece in zip(parts, bucket.buffer.split([part.size for part in parts]) if parts else ()):
                if (grad := part.grad) is not None:
                    grad.add_(part.place(piece, grad))

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own: this rank's error feedback by parameter, each as FSDP has sharded it. For
        ``torch.distributed.checkpoint`` there is :class:`thc.torch.Checkpoint`, which takes what :func:`replicate` has returned."""
        state = super().state_dict()
        # Nothing in it depends on steps.
        del state["steps"]
        return state


def _check_alike(own: torch.Tensor, mean: torch.Tensor) -> None:
    """Raises :exc:`thc.MismatchError` if replicas averaged gradients of different parameters, of whose digests and their squares this is the mean. A
    difference shows as a variance on all replicas, and where that is too little for f32, on those that differ."""
    digest, square = mean.cpu().chunk(2)
    differs = ((square - digest.square()).abs() > 0.012) | ((digest - own).abs() > 0.001)
    if bool(torch.isfinite(mean).all()) and bool(differs.any()):
        raise errors.MismatchError("replicas have gradients of different parameters in this backward pass: use the same layers on all replicas in each step")


def replicate(
    model: torch.nn.Module,
    process_group: Any,
    *,
    group: BaseGroup | None = None,
    over: str = "server",
    fallback: bool = True,
    device: str = "auto",
    compression: Compression = Compression(),
    join: Join = Join(),
) -> Replicas:
    """Averages a model that FSDP2 has sharded over its replicas, through THC; all ranks call it alike (docs/pytorch.md)::

        mesh = init_device_mesh("cuda", (hosts, 8), mesh_dim_names=("replicate", "shard"))
        fully_shard(model, mesh=mesh["shard"])
        thc.torch.replicate(model, mesh.get_group("replicate"))

    All replicas begin with the parameters and buffers of the first one. FSDP sums a module's gradients over its shards as always, and each shard's part
    is then averaged by a group of its own. While means travel, the backward pass goes on where FSDP lets a mean be added afterwards.

    - ``process_group``: that of the mesh's outer dimension, the ranks that have the same shard.
    - ``group``, ``over``, ``fallback``, ``device``, ``compression``, ``join``: as for :func:`thc.torch.wrap`. Of a compression ``method``, ``feedback`` and the
      codec's fields count. A server that is named has a job for each shard: the k-th process group, in the order of their first ranks, has the job
      whose number is k higher.
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
    if any(each._is_hsdp for module in modules for each in _groups(module)):
        raise errors.ConfigError(
            "this model is sharded over a mesh whose outer dimension torch itself averages: shard it over the inner one alone, "
            'fully_shard(model, mesh=mesh["shard"]), and give replicate mesh.get_group("replicate")'
        )
    compression.only("replicate", "feedback")
    group = enter(process_group, group, over, compression, join, is_one_of_many=True, fallback=fallback)
    begin_alike(model, process_group)
    names = {id(p): name for name, p in named_parameters(model).items()}
    return Replicas(Engine(group, Options.of(compression, group, fallback=fallback, device=device), Peers(process_group)), modules, names)
