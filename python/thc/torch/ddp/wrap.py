"""The one line to change, and what DDP hands its communication hook."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.join import Join
from thc.torch.ddp.future import BucketFuture, PassError
from thc.torch.ddp.hook import Hook, check_model
from thc.torch.hosts.rails import RailGroup
from thc.torch.joining import enter, names_server
from thc.torch.names import unwrapped
from thc.torch.options import Compression, Options
from thc.torch.ranks.peers import backend_on
from thc.torch.replicas import DigestOf


class State:
    """The state of :func:`thc_hook`, with the options of :func:`thc.torch.wrap`, which registers one itself::

        model.register_comm_hook(thc.torch.State(model), thc.torch.thc_hook)

    Nothing is started or joined before the first bucket comes, or :meth:`connect` is called. Without the ``model`` parameters have no names. A copy,
    or what is unpickled, has the options, without model, group and connection.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        process_group: Any = None,
        group: BaseGroup | None = None,
        over: str = "server",
        exclude: Sequence[str] = (),
        fallback: bool = True,
        device: str = "auto",
        check_replicas: int | None = None,
        compression: Compression = Compression(),
        join: Join = Join(),
    ) -> None:
        exclude = (exclude,) if isinstance(exclude, str) else tuple(exclude)
        self._options: dict[str, Any] = dict(
            over=over, exclude=exclude, fallback=fallback, device=device, check_replicas=check_replicas, compression=compression, join=join
        )
        self._model = None if model is None else weakref.ref(model)
        if process_group is None and isinstance(model, DistributedDataParallel) and model.process_group is not dist.group.WORLD:
            process_group = model.process_group
        self._process_group, self._group = process_group, group
        self.hook: Hook | None = None
        """What averages, once it is connected."""
        self._error: Exception | None = None
        self.pass_error = PassError()
        """What a backward pass raises that comes before it is connected."""

    def __reduce__(self) -> Any:
        return functools.partial(State, **self._options), ()

    def is_of(self, model: torch.nn.Module) -> bool:
        """Whether it was made for this very model, and not for one of which it is a copy."""
        return self._model is not None and self._model() is model

    def connect(self) -> Hook:
        """Compares the options of all ranks, joins the job and returns the hook. A collective; again, it returns the same."""
        if self._error is not None:
            raise self._error
        if self.hook is None:
            try:
                self.hook = self._connect()
            except Exception as error:
                self._error = error
                raise
        return self.hook

    def _connect(self) -> Hook:
        model, group = None if self._model is None else self._model(), self._group
        over, exclude, fallback, device, check_replicas, compression, join = self._options.values()

        def check() -> bool | str:
            if model is not None:
                self._check_free(model)
            check_model(model, compression, exclude, device)
            if compression.adapt is not None and (join.rails is True or isinstance(group, RailGroup)):
                raise ConfigError("rails and adapt: a rank averages shares of parameters, not whole ones: leave one of them out")
            if check_replicas is not None:
                DigestOf(check_replicas)
            return join.rails if join.rails != "auto" or self._gpus_compress(compression, join) else False

        others = dict(exclude=exclude, fallback=fallback, check_replicas=check_replicas)
        joined = enter(self._process_group, group, over, compression, join, check=check, **others)
        owns = group is None and not names_server(join)
        try:
            hook = Hook(joined, model, self._process_group, Options.of(compression, joined, exclude=exclude, fallback=fallback, device=device))
        except BaseException:
            if owns:
                joined.close()
            raise
        hook.owns_group = owns
        if check_replicas is not None and model is not None:
            model.register_forward_pre_hook(DigestOf(check_replicas, hook))
        return hook

    def _check_free(self, model: torch.nn.Module) -> None:
        """Refuses a model whose gradients something else averages already."""
        if state_of(model) not in (None, self):
            raise ConfigError("this model is wrapped already: thc.torch.hook_of finds its hook; make a new DistributedDataParallel for another one")
        # A copy lists the hook of what it is a copy of.
        if any(fn is not thc_hook for fn, _ in getattr(model, "_comm_hooks", ())):
            raise ConfigError("this model has a communication hook already, and DDP takes one: wrap it instead of registering another")
        if any(hasattr(p, "_in_backward_optimizers") for p in model.parameters()):
            raise ConfigError("this model has optimizers in its backward pass, for which DDP registers a hook of its own: step them after it")

    def _gpus_compress(self, compression: Compression, join: Join) -> bool:
        """Whether the ranks of a host had better be workers of several jobs, unless told otherwise: each compresses on a GPU of its own, and
        nothing is asked for that needs whole parameters, or a server that waits for nobody."""
        model = None if self._model is None else self._model()
        if names_server(join) or join.colocated is not None or {"quorum", "policy"} & (join.server or {}).keys():
            return False
        if compression.adapt is not None or self._options["device"] == "cpu" or model is None:
            return False
        return backend_on(self._process_group, "cuda") == "nccl" and all(p.device.type == "cuda" for p in model.parameters())


def state_of(model: torch.nn.Module) -> State | None:
    """The state that is registered with a model, and not with one of which this is a copy."""
    ddp = unwrapped(model)
    return next((state for fn, state in getattr(ddp, "_comm_hooks", ()) if fn is thc_hook and state.is_of(ddp)), None)


def thc_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
    """The communication hook: averages a bucket as the :class:`State` says. For ``register_comm_hook``."""
    try:
        hook = state.hook or state.connect()
    except Exception as error:
        # Raised from here it would leave DDP half-way, for good.
        future = BucketFuture(bucket.buffer(), state.pass_error, bucket.is_last())
        future.set_result(error)
        return future.future
    return hook.start(bucket)


def wrap(
    model: DistributedDataParallel,
    *,
    group: BaseGroup | None = None,
    over: str = "server",
    exclude: Sequence[str] = (),
    fallback: bool = True,
    device: str = "auto",
    check_replicas: int | None = None,
    compression: Compression = Compression(),
    join: Join = Join(),
) -> DistributedDataParallel:
    """Makes a DDP model average its gradients through THC, and returns it. All ranks call it alike; one rank alone keeps its gradients.

    - ``group``: the group to average in, such as that of another model's hook; without one the ranks join the job that ``join`` or the
      environment names (``THC_PS``, ``THC_CONFIG``), or run a parameter server themselves, a share of it on each host.
    - ``over``: ``"server"``, or ``"process-group"``: no server, the model's own process group adds the compressed values up.
    - ``exclude``: parameters of these names, or of names that match, such as ``"*.bias"``, are not compressed.
    - ``fallback``: whether training goes on through the process group when the server is lost, and compressed when it is back.
    - ``device``: what compresses: ``"cpu"``, ``"triton"``, or ``"auto"``: Triton for gradients on a GPU, where it is installed.
    - ``check_replicas``: after every so many steps the ranks compare their parameters, and all raise :class:`thc.ReplicasError` if they differ.
    - ``compression``: method, bits, error feedback, what is chosen while training: see :class:`thc.torch.Compression`.
    - ``join``: server, secrets, time-outs: see :class:`thc.torch.Join`.

    :func:`hook_of` finds the hook, with its statistics, its state for a checkpoint, and what else can be asked of it.
    """
    # What torch.compile has made averages as the model in it.
    ddp = unwrapped(model)
    if not isinstance(ddp, DistributedDataParallel):
        raise TypeError(f"wrap takes a DistributedDataParallel model, not {type(model).__name__}{_way(model)}")
    state = State(
        ddp, group=group, over=over, exclude=exclude, fallback=fallback, device=device, check_replicas=check_replicas, compression=compression, join=join
    )
    hook = state.connect()
    try:
        ddp.register_comm_hook(state, thc_hook)
    except BaseException:
        hook.close()
        raise
    return model


def _way(model: Any) -> str:
    """What to do with a model that is no DistributedDataParallel."""
    if hasattr(model, "set_all_reduce_hook"):
        return ": the replicas of a sharded model are averaged by thc.torch.replicate"
    if hasattr(model, "sharding_strategy"):
        return ": shard with torch.distributed.fsdp.fully_shard, whose replicas thc.torch.replicate averages"
    if isinstance(inner := getattr(model, "_forward_module", getattr(model, "module", None)), DistributedDataParallel):
        return f": give it the {type(inner).__name__} in that, before it is wrapped further"
    return ": make one of the model first, DistributedDataParallel(model)" if isinstance(model, torch.nn.Module) else ""


def is_wrapped(model: torch.nn.Module) -> bool:
    """Whether a model averages its gradients through THC."""
    return state_of(model) is not None


def hook_of(model: torch.nn.Module) -> Hook:
    """The hook of a model that :func:`wrap` was called with; of one with a :class:`State` that waits for its first bucket, it connects that."""
    state = state_of(model)
    if state is None:
        raise ConfigError("this model has no THC hook: call thc.torch.wrap with it first")
    return state.connect()
