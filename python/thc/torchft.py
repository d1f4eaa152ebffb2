"""torchft, whose replicas come and go while training: a process group for its ``Manager``.

::

    from torchft import Manager
    from thc.torchft import ProcessGroupTHC

    manager = Manager(pg=ProcessGroupTHC(), min_replica_size=2, ...)

The large all-reduces of floats that the manager makes travel compressed, as sums in lanes that gloo adds up; everything else is gloo's, or NCCL's on
a GPU. Nothing else has to run (docs/backend.md).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from thc.errors import ConfigError

try:
    from torchft.process_group import ProcessGroupWrapper
except ImportError as error:
    raise ConfigError(f"thc.torchft needs torchft ({error}): pip install torchft") from error

# Refuses a torch that is too old.
import thc.torch
from thc.torch.backend.process_group import ThcProcessGroup

__all__ = ["ProcessGroupTHC"]


class ProcessGroupTHC(ProcessGroupWrapper):
    """A process group that is made anew whenever the quorum changes: ``configure`` has the store and the ranks of the members there are.

    ``options`` say what is compressed, and how; all replicas give the same. ``timeout`` is how long a collective waits for a replica that is
    late. A replica that is gone fails the step: the manager does not commit it, and the next one has the members that are left.
    Without error feedback, the default, nothing of a replica that has gone is missing, and one that comes needs nothing but the manager's own state.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60), options: thc.torch.backend.Options | None = None) -> None:
        super().__init__(timeout)
        self._options = options or thc.torch.backend.Options()

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        return ThcProcessGroup(store, rank, world_size, self._timeout, self._options)

    def shutdown(self) -> None:
        group = self._pg
        super().shutdown()
        if group is not None:
            group.shutdown()

    def stats(self) -> Any:
        """Totals since the members last changed, as :class:`thc.Stats`; nothing before anything was compressed."""
        return None if self._pg is None else self._pg.stats()

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return "torchft-thc"
