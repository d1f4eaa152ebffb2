"""All-reduce of gradients at 4 bits per coordinate (THC), through a parameter server or a switch.

:class:`Group` is a worker's membership in a job; ``thc.torch`` trains PyTorch models through one.
:class:`Asynchronous` is the other way of training: a server holds the model, and nobody waits for anybody.
"""

from thc._native import __version__ as __version__
from thc.arguments import Plan as Plan
from thc.asynchronous.model import Asynchronous as Asynchronous, ModelServer as ModelServer, ModelSpec as ModelSpec
from thc.asynchronous.model import Pulled as Pulled, Pushed as Pushed, Tensor as Tensor
from thc.errors import *  # noqa: F403 - all of them
from thc.group import Group as Group, Handle as Handle
from thc.join import Join as Join
from thc.logs import log as log
from thc.metrics import Metrics as Metrics, serve_metrics as serve_metrics
from thc.server import Server as Server
from thc.stats import Job as Job, Stats as Stats, Table as Table, Training as Training
