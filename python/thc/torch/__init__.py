"""Training with PyTorch's ``DistributedDataParallel`` through THC.

::

    ddp = thc.torch.wrap(DistributedDataParallel(model))

That is the one line to change: from then on ``backward`` averages gradients at 4 bits per coordinate. The options are those of :func:`wrap`,
:class:`Compression` and :class:`Join`; :class:`Hook` is what a wrapped model can be asked. :func:`replicate` averages the replicas of models that FSDP2
shards, :func:`overlap` hides the averaging behind the next step, :func:`outer` makes fewer and larger steps over slow links, and
:mod:`thc.torch.backend` is a backend of ``torch.distributed``. :class:`AsynchronousSGD` trains a model on a server.
"""

# First: the other modules import what an older torch does not have.
import thc.torch.release

from thc.asynchronous.optimizer import AsynchronousSGD as AsynchronousSGD, coordinates as coordinates, tensors as tensors
from thc.join import Join as Join
from thc.torch import backend as backend
from thc.torch.collective import CollectiveGroup as CollectiveGroup
from thc.torch.ddp.checkpoint import Checkpoint as Checkpoint
from thc.torch.ddp.hook import Hook as Hook
from thc.torch.ddp.wrap import State as State, hook_of as hook_of, is_wrapped as is_wrapped, thc_hook as thc_hook, wrap as wrap
from thc.torch.options import Compression as Compression
from thc.torch.parts.outer import Outer as Outer, nesterov as nesterov, outer as outer
from thc.torch.parts.overlap import Overlap as Overlap, overlap as overlap
from thc.torch.parts.plan import Adapt as Adapt, Plan as Plan, PlanRow as PlanRow
from thc.torch.replicas import check_replicas as check_replicas
from thc.torch.sharding import Replicas as Replicas, replicate as replicate
from thc.torch.synchronize import sync_parameters as sync_parameters

backend.register()
