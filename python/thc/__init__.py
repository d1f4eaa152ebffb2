"""All-reduce of gradients at 4 bits per coordinate (THC), through a parameter server or a switch.

:class:`Group` is a worker's membership in a job; ``thc.torch`` trains PyTorch models through one.
:class:`Asynchronous` is the other way of training: a server holds the model, and nobody waits for anybody.
"""

from thc._native import __version__ as __version__
from thc.arguments import Plan
from thc.asynchronous import Asynchronous, ModelServer, ModelSpec, Pulled, Pushed, Tensor
from thc.errors import *  # noqa: F403 - the names are listed there
from thc.errors import __all__ as _errors
from thc.group import Group, Handle
from thc.join import Join
from thc.logs import log
from thc.metrics import Metrics, serve_metrics
from thc.server import Server
from thc.stats import Job, Stats, Table, Training

__all__ = [
    "Asynchronous",
    "Group",
    "Handle",
    "Job",
    "Join",
    "Metrics",
    "ModelServer",
    "ModelSpec",
    "Plan",
    "Pulled",
    "Pushed",
    "Server",
    "Stats",
    "Table",
    "Tensor",
    "Training",
    "__version__",
    "log",
    "serve_metrics",
    *_errors,
]
