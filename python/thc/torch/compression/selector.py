"""What takes buckets to the others: chosen when the first of them comes, by where its gradients are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thc.base_group import BaseGroup
from thc.logs import announce
from thc.torch.engine.bucket import Bucket
from thc.torch.collective import CollectiveGroup
from thc.torch.compression.compressor import Compressor, HostCompressor
from thc.torch.device.choice import Choice, choose
from thc.torch.device.codec import DeviceCodec
from thc.torch.device.compressor import DeviceCompressor
from thc.torch.device.lanes import LanesCodec
from thc.torch.options import IN_FLIGHT, Options
from thc.torch.engine.part import EnginePart
from thc.torch.ranks.peers import Peers
from thc.torch.hosts.rail_compressor import RailCompressor
from thc.torch.hosts.rails import RailGroup

__all__ = ["CompressorSelector"]



class CompressorSelector:
    """The compressor of a group. Before the first bucket it is the host's, which has what a checkpoint brings."""

    def __init__(
        self, group: BaseGroup, options: Options, peers: Peers, meanwhile: Callable[[], None], choice: Choice | None = None, parts: Sequence[EnginePart] = ()
    ) -> None:
        """While ranks of this host are waited for, ``meanwhile`` is called now and then. With a ``choice`` of the host that is where buckets are
        compressed, whatever comes; ``parts`` may have reasons for it, too."""
        self._group, self._options, self._peers = group.rail if isinstance(group, RailGroup) else group, options, peers
        self._parts = parts
        self.compressor = HostCompressor(self._group, options)
        """What compresses buckets, or this rank's shares of them."""
        self.shares = RailCompressor(group, lambda: self.compressor, IN_FLIGHT, meanwhile) if isinstance(group, RailGroup) else None
        """What divides buckets among the ranks of a host."""
        self.choice = choice
        """Where gradients are compressed, and why there."""

    def choose(self, bucket: Bucket) -> Compressor:
        """What takes a bucket to the others. The first one decides for all: they are on one device."""
        if self.choice is None:
            device = bucket.buffer.device
            made = self._check_alike(choose(self._group, device, self._options, [part.host_reason for part in self._parts if part.host_reason]))
            if made.kernels is not None:
                where = LanesCodec if isinstance(self._group, CollectiveGroup) else DeviceCodec
                before = self.compressor
                self.compressor = DeviceCompressor(self._group, self._options, where(self._group, device, made.kernels))
                self.compressor.feedback.load(before.feedback.save())
            self.choice = made
            self._group.compresses_on = (made.where, made.why)
            if self._peers.rank == 0 and self._group.workers > 1:
                announce(f"gradients on {device} are compressed by {made.where} ({made.why}) and averaged by {self._group!r}")
        return self.compressor if self.shares is None else self.shares

    def _check_alike(self, made: Choice) -> Choice:
        """Lanes on a GPU are added up by something else than those on the host: all ranks have them there, or none."""
        if not self._group.sums_in_lanes or self._group.workers == 1:
            return made
        ours = int(made.kernels is not None)
        other = next((rank for rank, (theirs,) in enumerate(self._peers.gather([ours])) if theirs != ours), None)
        if other is None or not ours:
            return made
        return Choice("cpu", f"rank {other} has its lanes there")
