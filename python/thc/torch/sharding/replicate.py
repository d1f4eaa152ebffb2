"""Sharded models: what is replicated across groups of shards is averaged through THC."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

from thc import errors
from thc.base_group import BaseGroup
from thc.join import Join
from thc.torch.engine.bucket import Arrival, Bucket
from thc.torch.engine.engine import Adapter, Engine
from thc.torch.ranks.gathering import gather_objects
from thc.torch.names import named_parameters
from thc.torch.joining import begin_alike, enter, names_server, scope_of
from thc.torch.compression.layout import Layout, Segment
from thc.torch.options import Compression, Options
from thc.torch.ranks.peers import Peers
from thc.torch.sharding.shard import Part, Shard

class _Travelling:
    """Gradients whose mean nobody waits for before the end of the backward pass."""

    def __init__(self, parts: list[Part], bucket: Bucket, arrival: Arrival) -> None:
        self.parts, self.bucket, self.arrival = parts, bucket, arrival


class Replicas(Adapter):
    """The same shard on several ranks, each with its own data; made by :func:`replicate`."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.skipped = False
        """Whether a gradient since the last look at it was not finite on some replica; the same on all of them."""
        self._scope = f"replica{scope_of(self.group)}"
        self._shards: list[Shard] = []
        self._stream: Any = None
        self._travelling: list[_Travelling] = []
        """The calls of the step under way, which the end of the backward pass ends."""
        self._index = 0
        self._copies: dict[tuple[int, int], torch.Tensor] = {}
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
        module.set_all_reduce_hook(functools.partial(self._take_mean, shard), stream=self._stream)

    def _take_mean(self, shard: Shard, gradients: torch.Tensor) -> None:
        """What FSDP calls with a module's gradients, summed over the shards: those of the parameters that have got some."""
        if gradients.numel() == 0:
            return
        parts = shard.match_reduced(gradients.numel())
        if gradients.device.type == "cuda":
            # It is FSDP's, of another stream, and torch before 2.15 may let go of it while this one works on it.
            gradients.record_stream(torch.cuda.current_stream(gradients.device))
        if shard.averages and self._pass != (now := torch._C._current_graph_task_id()):
            self._pass = now
            if self._travelling or self._index:
                # A backward pass has ended half-way, on all replicas.
                self._travelling, self._index = [], 0
            torch.autograd.Variable._execution_engine.queue_callback(self._deliver)
        if parts is not None and (not shard.averages or any(part.held_back for part in parts)):
            # FSDP adds them to what there is already; the sum travels when that of the last of several backward passes is there.
            for part in parts:
                part.held_back = True
        elif parts is not None and shard.adds_later(gradients.dtype):
            # FSDP adds nothing now, and the mean is added when the backward pass is over, which goes on meanwhile.
            flat = gradients.detach().clone()
            gradients.zero_()
            self._travelling.append(self._begin(flat, parts, shard.layout(parts), is_last=False))
        else:
            flat = gradients.detach().reshape(-1)
            layout = Layout(f"{shard.scope}.nameless", [Segment("all", 0, flat.numel(), True)]) if parts is None else shard.layout(parts)
            self._wait(self._begin(flat, parts or [], layout, is_last=True))

    def _begin(self, flat: torch.Tensor, parts: list[Part], layout: Layout, is_last: bool) -> _Travelling:
        """Has gradients averaged, in place."""
        arrival = Arrival()
        bucket = Bucket(self._index, is_last, flat, [], layout, arrival, None)
        if self.engine.fallback.is_enabled and not self.fallback_active:
            key = (layout.key, self._index)
            if key not in self._copies or self._copies[key].dtype != flat.dtype:
                self._copies[key] = torch.empty_like(flat)
            bucket.copy = self._copies[key].copy_(flat)
        bucket.record_ready()
        self.engine.clock.note_production()
        self._index = 0 if is_last else self._index + 1
        self.engine.put(bucket)
        return _Travelling(parts, bucket, arrival)

    def _wait(self, travelling: _Travelling) -> None:
        """Waits for the mean: the host until it is known, the current stream until it is in place."""
        try:
            travelling.arrival.wait()
        finally:
            self.skipped = self.skipped or self.engine.steps.skipped
        bucket = travelling.bucket
        if bucket.buffer.device.type == "cuda":
            current = torch.cuda.current_stream(bucket.buffer.device)
            if bucket.stream is not None:
                current.wait_stream(bucket.stream)
            bucket.buffer.record_stream(current)

    def _deliver(self) -> None:
        """The end of a backward pass: averages what has been held back, also of parameters that this one did not use, and waits for all means."""
        self._pass = -1
        held = []
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
            for part, piece in zip(parts, flat.split([part.size for part in parts])):
                part.read(piece)
            held.append(self._begin(flat, parts, shard.layout(parts), is_last=False))
        travelling, self._travelling = self._travelling, []
        if self._index:
            # A step ends with its last bucket, and only now it is known that no other comes: one of a single number.
            device = (held or travelling)[-1].bucket.buffer.device
            end = Layout(f"{self._scope}.end", [Segment("end", 0, 1, False)])
            self._wait(self._begin(torch.zeros(1, device=device), [], end, is_last=True))
        for mean, writes in [*((each, Part.add) for each in travelling), *((each, Part.write) for each in held)]:
            self._wait(mean)
            for part, piece in zip(mean.parts, mean.bucket.buffer.split([part.size for part in mean.parts])):
                writes(part, piece)

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
    """Averages a model that FSDP2 has sharded over its replicas, through THC; all ranks call it alike.

    ``model`` comes from ``torch.distributed.fsdp.fully_shard`` over the inner dimension of a mesh alone, and
    ``process_group`` is that of the outer one, the ranks that have the same shard::

        mesh = init_device_mesh("cuda", (hosts, 8), mesh_dim_names=("replicate", "shard"))
        fully_shard(model, mesh=mesh["shard"])
        thc.torch.replicate(model, mesh.get_group("replicate"))

    With a third, innermost dimension, tensor parallelism is applied before ``fully_shard``. All replicas begin with the parameters and
    buffers of the first one.

    FSDP sums a module's gradients over its shards as always, and each shard's part is then averaged by a group of its own:
    ``group``, or one of the server that ``join`` or the environment names, or one whose server these ranks run themselves. What is named is the job of the
    first shard, and the k-th process group, in the order of their first ranks, has the job whose number is k higher. The options are those of
    :func:`thc.torch.wrap`; of a compression ``feedback`` counts, besides what the codec takes. A gradient that is not finite becomes NaN on all replicas, and :attr:`Replicas.skipped` tells. f64 gradients go through
    the process group.

    While means travel, the backward pass goes on: the gradients of a module are zero until it is over, and then have the mean added. Not so those in
    f16, those that FSDP offloads to the CPU, and those of parameters with hooks of their own for accumulated gradients, which are waited for.

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
    compression.only("replicate", "feedback")
    further = _number_of(process_group) if group is None and names_server(join) else 0
    group = enter(process_group, group, over, compression, join, further, fallback=fallback)
    begin_alike(model, process_group)
    names = {id(p): name for name, p in named_parameters(model).items()}
    made = Replicas(Engine(group, Options.of(compression, group, fallback=fallback, device=device), Peers(process_group)))
    for module in modules:
        made.take(module, names)
    return made


def _number_of(process_group: Any) -> int:
    """This process group's place among those of all ranks, in the order of their first ranks."""
    every = gather_objects(min(dist.get_process_group_ranks(process_group)), None)
    return sorted(set(every)).index(every[dist.get_rank()])
