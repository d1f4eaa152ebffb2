"""Training with PyTorch's ``DistributedDataParallel`` through THC.

::

    ddp = thc.torch.wrap(DistributedDataParallel(model))

That is the one line to change: from then on ``backward`` averages gradients at 4 bits per coordinate. Options: :func:`wrap`, :class:`Compression`,
:class:`Join`; what else can be asked of a wrapped model: :class:`Hook`. For workers of unequal
speed: :class:`AsynchronousSGD`. Whether it pays on a cluster: :func:`worth_it`; not to wait for a rank that is late: :func:`keep_up`. To have each tensor's compression chosen while training: :class:`Adapt`, :func:`plot_plan`; models
that FSDP2 shards: :func:`wrap_sharded`, their replicas: :func:`replicate`; no step waits for a mean: :func:`overlap`; fewer, larger steps over slow links: :func:`outer`; a backend of ``torch.distributed`` for what wraps nothing, such as native HSDP: :mod:`thc.torch.backend`.
"""

# First: others import what an older torch does not have.
import thc.torch.release

from thc.join import Join
from thc.asynchronous.optimizer import AsynchronousSGD, coordinates, tensors
from thc.torch import backend
from thc.torch.adapt.options import Adapt
from thc.torch.ddp.checkpoint import Checkpoint
from thc.torch.collective import CollectiveGroup
from thc.torch.replicas.digests import check_replicas
from thc.torch.ddp.hook import Hook
from thc.torch.ddp.state import State, thc_hook
from thc.torch.replicas.keep_up import KeepUp, keep_up
from thc.torch.loops.outer import Outer, nesterov, outer
from thc.torch.loops.overlap import Overlap, overlap
from thc.torch.adapt.plan import Plan, PlanRow, plot_plan
from thc.torch.sharding.replicate import Replicas, replicate
from thc.torch.sharding.sharded import wrap_sharded
from thc.torch.replicas.synchronize import sync_parameters
from thc.torch.options import Compression
from thc.torch.worth import worth_it
from thc.torch.ddp.wrap import hook_of, is_wrapped, wrap

__all__ = [
    "Adapt",
    "AsynchronousSGD",
    "Checkpoint",
    "CollectiveGroup",
    "Compression",
    "Hook",
    "Join",
    "KeepUp",
    "Outer",
    "Overlap",
    "Plan",
    "PlanRow",
    "Replicas",
    "State",
    "backend",
    "check_replicas",
    "coordinates",
    "hook_of",
    "is_wrapped",
    "keep_up",
    "nesterov",
    "outer",
    "overlap",
    "plot_plan",
    "replicate",
    "sync_parameters",
    "tensors",
    "thc_hook",
    "worth_it",
    "wrap",
    "wrap_sharded",
]

backend.register()
