"""Asynchronous training: a server holds the model, workers pull it and push gradients, nobody waits for anybody.

Its optimizer for PyTorch is ``thc.torch.AsynchronousSGD``; without PyTorch, :class:`Asynchronous` trains any vector.
"""

from thc.asynchronous.model import Asynchronous, ModelServer, ModelSpec, Pulled, Pushed, Tensor

__all__ = ["Asynchronous", "ModelServer", "ModelSpec", "Pulled", "Pushed", "Tensor"]
