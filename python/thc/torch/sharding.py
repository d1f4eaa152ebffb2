"""Models that FSDP2 has sharded: what is replicated across groups of shards is averaged through THC."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

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
        self.name = name
        self._parameter = parameter
        self.size: int = parameter.padded_sharded_param_size.numel()
        self.produced = False
        """Whether the backward pass has computed its gradient, which FSDP has not taken yet."""

    @property
    def trains(self) -> bool:
        return bool(self._parameter.sharded_param.requires_grad)

    def watch(self) -> None:
        """Notices when its gradient has been computed; the parameter is whole now."""

        def note(_: torch.Tensor) -> None:
            self.produced = True

        if self.trains:
            self._parameter.unsharded_param.register_post_accumulate_grad_hook(note)

    def take_out(self, flat: torch.Tensor) -> None:
        """Moves its gradient to its place in a longer one, and leaves zeros."""
        grad = self.grad
        if grad is not None:
            self._remove_padding(flat, grad).copy_(grad)
            grad.zero_()

    def add(self, flat: torch.Tensor) -> None:
        """Adds what is there to its gradient."""
        grad = self.grad
        if grad is not None:
            grad.add_(self._remove_padding(flat, grad))

    def adds_later(self) -> bool:
        """Returns whether the gradient stays where FSDP puts it. Raises :exc:`thc.ConfigError` if a hook takes it before the backward pass is over."""
        if getattr(self._parameter.sharded_param, "_post_accumulate_grad_hooks", None):
            raise errors.ConfigError(f"a hook takes the gradient of {self.name} as soon as it is accumulated, and the mean comes later: leave the hook out")
        return not self._parameter.offload_to_cpu

    @property
    def grad(self) -> torch.Tensor | None:
        """Its gradient, without padding."""
        grad = self._parameter.sharded_param.grad
        return None if grad is None else grad._local_tensor.detach()

    def _remove_padding(self, flat: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        view = flat.view(self._parameter.padded_sharded_param_size)
        for dimension, size in enumerate(grad.shape):
            view = view.narrow(dimension, 0, size)
        return view


class Shard:
    """This rank's part of one module."""

    def __init__(self, scope: str, module: Any, names: dict[int, str]) -> None:
        """``names`` are those of the model's parameters. Makes the module whole for a moment, as all its ranks must."""
        self.scope = scope
        self._groups = _groups(module)
        self.parts = [ShardedParameter(names[id(each.sharded_param)], each) for group in self._groups for each in group.fsdp_params]
        self._layouts: dict[tuple[str, ...], Layout] = {}
        module.unshard()
        for part in self.parts:
            part.watch()
        module.reshard()

    @property
    def replicates(self) -> bool:
        """Whether FSDP itself averages this module's gradients over replicas."""
        return any(group._is_hsdp for group in self._groups)

    def trained(self) -> list[ShardedParameter]:
        """The parameters that are not frozen."""
        return [part for part in self.parts if part.trains]

    def match_reduced(self, length: int) -> list[ShardedParameter] | None:
        """The parameters to which a gradient of this length belongs that FSDP has summed over the shards; ``None`` if that is not certain."""
        trained = self.trained()
        produced = [part for part in trained if part.produced]
        for part in produced:
            part.produced = False
        return next((parts for parts in (trained, produced) if sum(part.size for part in parts) == length), None)

    def adds_later(self, dtype: torch.dtype) -> bool:
        """Returns whether a mean may be added to gradients of this type after FSDP: it neither divides them after its hook nor copies them."""
        divides = any(getattr(group, "force_sum_reduction_for_comms", False) for group in self._groups)
        return all([part.adds_later() for part in self.parts]) and dtype in (torch.float32, torch.bfloat16) and not divides

    def layout(self, parts: Iterable[ShardedParameter]) -> Layout:
        """Their places in a gradient."""
        parts = list(parts)
        names = tuple(part.name for part in parts)
        if names not in self._layouts:
            segments, at = [], 0
            for part in parts:
                segments.append(Segment(part.name, at, part.size, True))
                at += part.size
            self._layouts[names] = Layout(self.scope, segments)
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

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.skipped = False
        """Whether a gradient since the last look at it was not finite on some replica; the same on all of them."""
        self._scope = f"replica{scope_of(self.group)}"
        self._shards: list[Shard] = []
        self._stream: Any = None
        self._travelling: list[tuple[list[ShardedParameter], Bucket, Arrival]] = []
        """The calls of the step under way, which the end of the backward pass ends."""
        self._index = 0
        self._late: list[Shard] = []
        """Those whose gradients travel when this backward pass is over."""
        self._pass = -1
        """Torch's number of the backward pass whose end delivers what is under way."""

    def take(self, module: Any, names: dict[int, str]) -> None:
        """Averages a module's gradients from now on; ``names`` are those of the model's parameters."""
        shard = Shard(f"{self._scope}.{len(self._shards)}", module, names)
        if shard.replicates:
            raise errors.ConfigError(
                "this model is sharded over a mesh whose outer dimension torch itself averages: shard it over the inner one alone, "
                'fully_shard(model, mesh=mesh["shard"]), and give replicate mesh.get_group("replicate")'
            )
        self._shards.append(shard)
        device = next((p.device for p in module.parameters() if p.device.type == "cuda"), None)
        if device is not None and self._stream is None:
            self._stream = torch.cuda.Stream(device)
        # What FSDP does after its hook waits for this stream alone, on the device.
        module.set_all_reduce_hook(functools.partial(self._take, shard), stream=self._stream)

    def _take(self, shard: Shard, gradients: torch.Tensor) -> None:
        """What FSDP calls with a module's gradients, summed over the shards: those of the parameters that have got some."""
        if gradients.numel() == 0:
            return
        parts = shard.match_reduced(gradients.numel())
        if gradients.device.type == "cuda":
            # It is FSDP's, of another stream, and torch before 2.15 may let go of it while this one works on it.
            gradients.record_stream(torch.cuda.current_stream(gradients.device))
        if self._pass != (now := torch._C._current_graph_task_id()):
            self._pass = now
            # Something is left if a backward pass has ended half-way, on all replicas.
            self._travelling, self._late, self._index = [], [], 0
            torch.autograd.Variable._execution_engine.queue_callback(self._deliver)
        if shard.adds_later(gradients.dtype) and parts is not None:
            # FSDP adds nothing now, and the mean is added when the backward pass is over, which goes on meanwhile.
            flat = gradients.detach().clone()
            gradients.zero_()
            self._begin(flat, parts, shard.layout(parts))
        elif shard not in self._late:
            self._late.append(shard)

    def _begin(self, flat: torch.Tensor, parts: list[ShardedParameter], layout: Layout, is_last: bool = False) -> None:
        """Has gradients averaged, in place."""
        arrival = Arrival()
        copy = flat.clone() if self.engine.fallback.is_enabled and not self.fallback_active else None
        bucket = Bucket(self._index, is_last, flat, [], layout, arrival, copy).record_ready()
        self.engine.clock.produced = time.perf_counter()
        self._index = 0 if is_last else self._index + 1
        self._travelling.append((parts, bucket, arrival))
        self.engine.put(bucket)

    def _wait(self, bucket: Bucket, arrival: Arrival) -> torch.Tensor:
        """Waits for the mean: the host until it is known, the current stream until it is in place."""
        try:
            arrival.wait()
        finally:
            self.skipped = self.skipped or self.engine.steps.skipped
        if bucket.buffer.device.type == "cuda":
            current = torch.cuda.current_stream(bucket.buffer.device)
            if bucket.stream is not None:
                current.wait_stream(bucket.stream)
            bucket.buffer.record_stream(current)
        return bucket.buffer

    def _deliver(self) -> None:
        """The end of a backward pass: averages what could not be before, and waits for all means."""
        self._pass = -1
        for shard in self._late:
            parts = shard.trained()
            grad = next((part.grad for part in parts if part.grad is not None), None)
            if grad is None:
                continue
            flat = torch.zeros(sum(part.size for part in parts), dtype=grad.dtype, device=grad.device)
            for part, piece in zip(parts, flat.split([part.size for part in parts])):
                part.take_out(piece)
            self._begin(flat, parts, shard.layout(parts))
        if self._travelling:
            # A step ends with its last bucket, and only now it is known that no other comes: one of a single number.
            end = Layout(f"{self._scope}.end", [Segment("end", 0, 1, False)])
            self._begin(torch.zeros(1, device=self._travelling[-1][1].buffer.device), [], end, is_last=True)
        travelling, self._travelling = self._travelling, []
        for parts, bucket, arrival in travelling:
            flat = self._wait(bucket, arrival)
            for part, piece in zip(parts, flat.split([part.size for part in parts]) if parts else ()):
                part.add(piece)

    @property
    def is_alike(self) -> bool:
        """Whether :meth:`state_dict` is the same on all ranks: each has its own shard."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, on every rank its own: this rank's error feedback by parameter, each as FSDP has sharded it. For
        ``torch.distributed.checkpoint`` there is :class:`thc.torch.Checkpoint`, which takes what :func:`replicate` has returned."""
        state = self.engine.state_dict() | {"rank": dist.get_rank()}
        # Nothing in it depends on steps.
        del state["steps"]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called: on the same rank of as many, with the same model."""
        self.engine.load_state_dict(state)


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
    compression.only("replicate", "feedback")
    group = enter(process_group, group, over, compression, join, is_one_of_many=True, fallback=fallback)
    begin_alike(model, process_group)
    names = {id(p): name for name, p in named_parameters(model).items()}
    made = Replicas(Engine(group, Options.of(compression, group, fallback=fallback, device=device), Peers(process_group)))
    for module in modules:
        made.take(module, names)
    return made
