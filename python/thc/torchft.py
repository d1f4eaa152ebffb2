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

import torch

from thc.errors import ConfigError, ThcError

try:
    from torchft.process_group import ProcessGroupWrapper
    from torchft.work import _DummyWork
except ImportError as error:
    raise ConfigError(f"thc.torchft needs torchft ({error}): pip install torchft") from error

# Refuses a torch that is too old.
import thc.torch
from thc.torch.backend.process_group import ThcProcessGroup
from thc.torch.backend.sums import FutureWork


class _ManagedWork(FutureWork):
    """An all-reduce whose error is the group's and fails the step. When a work itself fails, torchft 0.2 ends the process in place of the step."""

    def __init__(self, work: Any, tensors: list[torch.Tensor], errors: list[Exception]) -> None:
        """``errors`` are those of the group as it was when the call was made: one that fails late says nothing of other members."""
        super().__init__()
        self._work, self._tensors, self._errors = work, tensors, errors
        self._failed = False
        self._future = work.get_future().then(self._values)

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._errors.append(error)
        _spoil(self._tensors)

    def _values(self, fulfilled: Any) -> Any:
        try:
            return fulfilled.value()
        except Exception as error:  # the group has it
            self._fail(error)
            return self._tensors

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until the call is over. Whether it succeeded."""
        try:
            self._work.wait(timeout) if timeout else self._work.wait()
        except Exception as error:  # the group has it
            self._fail(error)
            if timeout:
                return False
        # torchft takes a future whose work is over for one that is fulfilled.
        self._future.wait()
        return not self._failed


def _spoil(tensors: list[torch.Tensor]) -> None:
    """Nobody shall take for a sum what is half of one."""
    with torch.no_grad():
        for tensor in tensors:
            tensor.fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else 0)


class ProcessGroupTHC(ProcessGroupWrapper):
    """A process group that is made anew whenever the quorum changes: ``configure`` has the store and the ranks of the members there are.

    ``options`` say what is compressed, and how; all replicas give the same. ``timeout`` is how long a collective waits for a replica that is
    late. A replica that is gone fails the step: the manager does not commit it, and the next one has the members that are left. An
    all-reduce that fails raises nothing and leaves NaN (zeros in integers); :meth:`errored` has its error, where the manager looks for
    it, and later ones are left out.
    Without error feedback, the default, nothing of a replica that has gone is missing, and one that comes needs nothing but the manager's own state.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60), options: thc.torch.backend.Options | None = None) -> None:
        super().__init__(timeout)
        self._options = options or thc.torch.backend.Options()
        self._errors: list[Exception] = []

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        self._errors = []
        return ThcProcessGroup(store, rank, world_size, self._timeout, self._options)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        if not self._errors:
            try:
                return _ManagedWork(super().allreduce(tensors, opts), tensors, self._errors)
            except ConfigError:
                raise
            except (ThcError, RuntimeError) as error:
                self._errors.append(error)
        _spoil(tensors)
        return _DummyWork(tensors)

    def errored(self) -> Exception | None:
        """Why an all-reduce has failed since the members last changed, if one has."""
        return self._errors[0] if self._errors else None

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
