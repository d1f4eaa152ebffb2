"""What takes buckets to the other ranks: chosen once, when the first of them comes, by where its gradients are."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch

from thc import errors
from thc.base_group import BaseGroup
from thc.logs import announce
from thc.torch.compression.compressor import Compressor, HostCompressor, LoneCompressor
from thc.torch.device.codec import DeviceCodec
from thc.torch.device.compressor import DeviceCompressor
from thc.torch.engine.bucket import Bucket
from thc.torch.hosts.rail_compressor import RailCompressor
from thc.torch.hosts.rails import RailGroup
from thc.torch.options import IN_FLIGHT, KERNELS, Options
from thc.torch.ranks.lone import LoneGroup
from thc.torch.ranks.peers import Peers


@dataclass(frozen=True)
class Choice:
    """What the option ``device`` has come to for a device."""

    where: str
    """``"cpu"`` or ``"triton"``: by the library on the CPU, or where the gradients are, by kernels in Triton."""
    why: str
    kernels: ModuleType | None = None
    """What computes, if it is not the library."""


def _obstacle(group: BaseGroup, options: Options) -> str:
    """Why only the library can do what a job and options ask for, if so."""
    job = group.job
    if group.sums_in_lanes:
        return "the process group adds lanes up on the host"
    if options.adapt is not None:
        return "adapt measures and times what the host does"
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


def choose(group: BaseGroup, device: torch.device, options: Options) -> Choice:
    """Where buckets on a device are compressed. Raises :exc:`thc.ConfigError` if that is asked for and impossible."""
    wanted = options.device
    if isinstance(group, LoneGroup):
        return Choice("cpu", "one rank has nothing to compress")
    if wanted == "cpu":
        return Choice("cpu", 'device is "cpu"')
    if wanted == "auto" and device.type == "cpu":
        return Choice("cpu", "gradients are on the CPU")
    if wanted == "auto" and device.type != "cuda":
        return Choice("cpu", f"there are no kernels for gradients on {device}")
    where = "triton" if wanted == "auto" else wanted
    obstacle, kernels = _obstacle(group, options), None
    if not obstacle:
        kernels, obstacle = _kernels(where, device)
    if kernels is not None:
        return Choice(where, f"gradients are on {device}" if wanted == "auto" else f'device is "{wanted}"', kernels)
    if wanted != "auto":
        raise errors.ConfigError(f'device is "{wanted}", but {obstacle}: leave device out')
    return Choice("cpu", obstacle)


class CompressorSelector:
    """The compressor of a group. Before the first bucket it is the host's, which has what a checkpoint brings."""

    def __init__(self, group: BaseGroup, options: Options, peers: Peers, meanwhile: Callable[[], None]) -> None:
        """While ranks of this host are waited for, ``meanwhile`` is called now and then."""
        self._group, self._options, self._peers = group.rail if isinstance(group, RailGroup) else group, options, peers
        self.compressor = (LoneCompressor if isinstance(group, LoneGroup) else HostCompressor)(self._group, options)
        """What compresses buckets, or this rank's shares of them."""
        self.shares = RailCompressor(group, lambda: self.compressor, IN_FLIGHT, meanwhile) if isinstance(group, RailGroup) else None
        """What divides buckets among the ranks of a host."""
        self.choice: Choice | None = None
        """Where gradients are compressed, and why there."""

    def choose(self, bucket: Bucket) -> Compressor:
        """What takes all buckets to the other ranks, now that the first one has come: they are on one device."""
        if self.choice is None:
            device = bucket.buffer.device
            made = choose(self._group, device, self._options)
            if made.kernels is not None:
                before = self.compressor
                self.compressor = DeviceCompressor(self._group, self._options, DeviceCodec(self._group, device, made.kernels))
                self.compressor.feedback.load(before.feedback.save())
            self.choice = made
            self._group.compresses_on = (made.where, made.why)
            if self._peers.rank == 0 and self._group.workers > 1:
                announce(f"gradients on {device} are compressed by {made.where} ({made.why}) and averaged by {self._group!r}")
        return self.compressor if self.shares is None else self.shares
