"""The process groups of torch's own that the backend stands on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


def _gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)


def gloo_group(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A process group of gloo on a store of its own. torch's list of process groups does not have it: so ranks need not make as many of
    them in the same order, and its name clashes with none."""
    made = dist.ProcessGroup(store, rank, size)
    made._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, _gloo(store, rank, size, timeout))
    made._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    return made


def register_backends(groups: list[Any], store: Any, rank: int, size: int, timeout: timedelta, nccl_options: Any = None) -> None:
    """Gives process groups gloo for the CPU and, where there is a GPU, NCCL for it; without NCCL gloo has tensors of the GPU, too."""
    kinds = dist.ProcessGroup.BackendType
    gloo = _gloo(dist.PrefixStore("gloo", store), rank, size, timeout)
    found = [(torch.device("cpu"), kinds.GLOO, gloo)]
    if torch.cuda.is_available():
        if dist.is_nccl_available():
            options = nccl_options or dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl", store), rank, size, options)
            found.append((torch.device("cuda"), kinds.NCCL, nccl))
        else:
            found.append((torch.device("cuda"), kinds.GLOO, gloo))
    for group in groups:
        for device, kind, backend in found:
            group._register_backend(device, kind, backend)
        # As torch chooses for "cpu:gloo,cuda:nccl": a barrier is one of the GPU where there is one.
        group._set_default_backend(found[-1][1])
