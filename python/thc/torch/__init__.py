"""Training with PyTorch's ``DistributedDataParallel`` through THC.

::

    ddp = thc.torch.wrap(DistributedDataParallel(model))

That is the one line to change: from then on ``backward`` averages gradients at 4 bits per coordinate. For the
choice of group, several models, checkpoints: :func:`wrap`, :func:`hook`, :class:`Hook`. For workers of unequal
speed: :class:`AsynchronousSGD`.
"""

from thc.torch.asynchronous import AsynchronousSGD, coordinates
from thc.torch.hook import Hook, hook
from thc.torch.synchronize import sync_parameters
from thc.torch.wrap import hook_of, wrap

__all__ = ["AsynchronousSGD", "Hook", "coordinates", "hook", "hook_of", "sync_parameters", "wrap"]
