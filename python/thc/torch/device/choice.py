"""Where buckets are compressed, and why there."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import torch

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.collective import CollectiveGroup
from thc.torch.options import KERNELS, Options
from thc.torch.ranks.lone import LoneGroup

__all__ = ["ON_CPU", "Choice", "choose"]


@dataclass(frozen=True)
class Choice:
    """What the option ``device`` has come to for a device."""

    where: str
    """``"cpu"`` or ``"triton"``: by the library on the CPU, or where the gradients are, by kernels in Triton."""
    why: str
    kernels: ModuleType | None = None
    """What computes, if it is not the library."""


ON_CPU = Choice("cpu", "gradients are on the CPU")
"""Where those compress that copy gradients to the CPU themselves."""


def _obstacle(group: BaseGroup, device: torch.device, options: Options, reasons: Sequence[str]) -> str:
    """Why only the library can do what a job and options ask for, if so."""
    job = group.job
    if isinstance(group, CollectiveGroup) and group.words_on(device) is None:
        return "the process group adds nothing up on a GPU: initialize it with NCCL"
    if reasons:
        return reasons[0]
    if options.feedback and (job.policy != "reliable" or job.quorum < job.workers):
        return "the job may lose packets, and then the library keeps what error feedback is made of until results are in"
    return ""


def _kernels(where: str, device: torch.device) -> tuple[ModuleType | None, str]:
    """What computes so, or why it cannot."""
    try:
        found = importlib.import_module(KERNELS[where])
    except ImportError as error:
        return None, f"Triton cannot be imported ({error})"
    obstacle: str = found.obstacle(device)
    return (None, obstacle) if obstacle else (found, "")


def choose(group: BaseGroup, device: torch.device, options: Options, reasons: Sequence[str] = ()) -> Choice:
    """Where buckets on a device are compressed; ``reasons`` are those of an engine's parts for the host. Raises
    :exc:`thc.ConfigError` if that is asked for and impossible."""
    wanted = options.device
    if isinstance(group, LoneGroup):
        return Choice("cpu", "one rank has nothing to compress")
    if wanted == "cpu":
        return Choice("cpu", 'device is "cpu"')
    if wanted == "auto" and device.type == "cpu":
        return ON_CPU
    if wanted == "auto" and device.type != "cuda":
        return Choice("cpu", f"there are no kernels for gradients on {device}")
    where = "triton" if wanted == "auto" else wanted
    obstacle, kernels = _obstacle(group, device, options, reasons), None
    if not obstacle:
        kernels, obstacle = _kernels(where, device)
    if kernels is not None:
        return Choice(where, f"gradients are on {device}" if wanted == "auto" else f'device is "{wanted}"', kernels)
    if wanted != "auto":
        raise errors.ConfigError(f'device is "{wanted}", but {obstacle}: leave device out')
    return Choice("cpu", obstacle)
