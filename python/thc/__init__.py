"""All-reduce of gradients at 4 bits per coordinate (THC), through a parameter server or a switch.

:class:`Group` is a worker's membership in a job; ``thc.torch`` trains PyTorch models through one.
"""

from thc.errors import *  # noqa: F403 - the names are listed there
from thc.errors import __all__ as _errors
from thc.group import Group, Handle
from thc.server import Server
from thc.stats import Job, Stats

__all__ = ["Group", "Handle", "Job", "Server", "Stats", *_errors]
