"""Where the optimizer of asynchronous training was in the previous version: :mod:`thc.asynchronous.optimizer`."""

import warnings

from thc.asynchronous.optimizer import AsynchronousSGD, coordinates, tensors

__all__ = ["AsynchronousSGD", "coordinates", "tensors"]

warnings.warn("thc.torch.asynchronous is deprecated: use thc.torch", DeprecationWarning, stacklevel=2)
