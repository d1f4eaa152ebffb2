"""The process group: gloo's or NCCL's but for what is compressed."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from thc import environment
from thc.errors import ConfigError
from thc.stats import Stats
from thc.torch.backend.options import Options, exact
from thc.torch.backend.sums import DTYPES, JointWork, Sums, work_that_ends
from thc.torch.ranks.gathering import compare_options

log = logging.getLogger("thc.torch")


def _register_backends(groups: list[Any], store: Any, rank: int, size: int, timeout: timedelta, nccl_options: Any = None) -> None:
    """Gives process groups gloo for the CPU and, where there is a GPU, NCCL for it; without NCCL gloo has tensors of the GPU, too."""
    kinds = dist.ProcessGroup.BackendType
    on_host = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout=timeout)
    found = [(torch.device("cpu"), kinds.GLOO, on_host)]
    if torch.cuda.is_available():
        if dist.is_nccl_available():
            options = nccl_options or dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl", store), rank, size, options)
            found.append((torch.device("cuda"), kinds.NCCL, nccl))
        else:
            found.append((torch.device("cuda"), kinds.GLOO, on_host))
    for group in groups:
        for device, kind, backend in found:
            group._register_backend(device, kind, backend)
        # As torch chooses for "cpu:gloo,cuda:nccl": a barrier is one of the GPU where there is one.
        group._set_default_backend(found[-1][1])


class ThcProcessGroup(dist.ProcessGroup):
    """What ``init_process_group("thc")`` and ``new_group(backend="thc")`` make.

    gloo and NCCL are registered with it, but every collective comes through Python to the process group beneath: where a class in Python leaves
    one out, torch calls its own holding the interpreter's lock, which a thread of gloo may want that holds what the call waits for.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, options: Any = None) -> None:
        super().__init__(rank, size)
        nccl_options = None
        if options is not None and not isinstance(options, Options):
            if not hasattr(dist, "ProcessGroupNCCL") or not isinstance(options, dist.ProcessGroupNCCL.Options):
                raise ConfigError(f'options of type {type(options).__name__}: a process group of the backend "thc" takes thc.torch.backend.Options')
            nccl_options, options = options, None
        self._options: Options = options or Options()
        if environment.is_configured():
            log.warning('the backend "thc" uses no parameter server, also where the environment names one: thc.torch.wrap does')
        self._store, self._timeout = store, timeout
        # Calls through a group of its own come to gloo and NCCL without coming here again.
        self._beneath = dist.ProcessGroup(store, rank, size)
        _register_backends([self, self._beneath], store, rank, size, timeout, nccl_options)
        compare_options(self._options.numbers(), self._beneath)
        if (1 << (self._options.compression.lane or 8)) - 1 < size:
            raise ConfigError(f"lanes of {self._options.compression.lane} bits do not hold sums of {size} ranks: give a wider lane")
        self._sums: Sums | None = None

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return "thc"

    def compresses(self, tensor: torch.Tensor, op: Any) -> bool:
        """Whether the all-reduce of a tensor is compressed: the same on all ranks that call alike."""
        return (
            tensor.dtype in DTYPES
            and tensor.numel() >= self._options.compression.min_size
            and tensor.layout == torch.strided
            and tensor.device.type in ("cpu", "cuda")
            and (op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG)
            and self.size() > 1
            and (bool(self._options.everywhere) or _in_backward())
            and not exact.depth
        )

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, op: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        opts = _options(opts, op, timeout)
        if len(tensors) == 1 and self.compresses(tensors[0], opts.reduceOp):
            return self._add_up(tensors[0], opts.reduceOp)
        return work_that_ends(self._beneath.allreduce(tensors, opts), tensors)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        opts = dist.AllreduceCoalescedOptions() if opts is None else opts
        if not any(self.compresses(tensor, opts.reduceOp) for tensor in tensors):
            return work_that_ends(self._beneath.allreduce_coalesced(tensors, opts), tensors)
        return JointWork([self.allreduce([tensor], opts.reduceOp) for tensor in tensors], tensors)

    def _add_up(self, tensor: torch.Tensor, op: Any) -> Any:
        if self._sums is None:
            self._sums = Sums(self, dist.PrefixStore("thc", self._store), self._timeout, self._options.compression)
        return self._sums.add_up(tensor, op == dist.ReduceOp.AVG)

    def stats(self) -> Stats | None:
        """Totals of what was compressed; nothing before the first of it."""
        return None if self._sums is None else self._sums.stats()

    def shutdown(self) -> None:
        self._close()
        self._beneath.shutdown()

    def abort(self) -> None:
        if self._sums is not None:
            self._sums.abort()
        self._close()
        self._beneath.abort()

    def _close(self) -> None:
        # Its threads end when what is under way is over.
        self._sums = None


def _in_backward() -> bool:
    """Whether this thread is in a backward pass, which is where gradients are added up."""
    found: int = torch._C._current_graph_task_id()
    return found != -1


_COLLECTIVES = (
    "broadcast reduce barrier send recv recv_anysource gather gather_single scatter alltoall all_to_all_single alltoall_base allgather "
    "allgather_coalesced all_gather_single _allgather_base all_gather_single_coalesced allgather_into_tensor_coalesced reduce_scatter "
    "reduce_scatter_single _reduce_scatter_base reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced"
).split()
"""All but all-reduces, by all names that releases of torch have for them."""

_RENAMED = {"recvAnysource": "recv_anysource", "start_coalescing": "_start_coalescing", "end_coalescing": "_end_coalescing"}
"""What C++ looks for by another name than Python does."""


def _forward(name: str) -> Any:
    """A method that does what the process group beneath does."""

    def call(self: ThcProcessGroup, *args: Any, **options: Any) -> Any:
        found = getattr(self._beneath, name)(*args, **options)
        return found if name == "_start_coalescing" else work_that_ends(found, [])

    return call


for _name, _called in {**{name: name for name in _COLLECTIVES}, **_RENAMED}.items():
    if hasattr(dist.ProcessGroup, _called):
        setattr(ThcProcessGroup, _name, _forward(_called))


def _options(opts: Any, op: Any, timeout: timedelta | None) -> Any:
    """The options of a call in any of the ways in which torch lets it be written."""
    if isinstance(opts, dist.AllreduceOptions):
        return opts
    made = dist.AllreduceOptions()
    for given in (opts, op):
        if given is not None:
            made.reduceOp = given if isinstance(given, dist.ReduceOp) else dist.ReduceOp(given)
    if timeout is not None:
        made.timeout = timeout
    return made
