"""Means that nobody waits for at once, and that come from the process group when the parameter server is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thc.group import Group
from thc.torch.board import Board
from thc.torch.bucket import Bucket
from thc.torch.clock import Clock
from thc.torch.compressor import HostCompressor
from thc.torch.joining import Gather
from thc.torch.layout import Layout, Segment
from thc.torch.options import Options
from thc.torch.passage import Passage
from thc.torch.peers import Peers
from thc.torch.pipeline import pipeline_of
from thc.torch.steps import Steps
from thc.torch.store import shared_store
from thc.torch.updates import Arrival

__all__ = ["Averaging", "Piece"]

PATIENCE = 10.0
"""Seconds that the board may take to answer."""


class Piece:
    """Numbers that are averaged together, again and again: f32 on the CPU, in place."""

    def __init__(self, name: str, numbers: torch.Tensor, compressed: bool) -> None:
        self.numbers = numbers
        self.layout = Layout(name, [Segment("all", 0, numbers.numel(), compressed)])
        self._copy: torch.Tensor | None = None
        self._arrival: Arrival | None = None

    @property
    def under_way(self) -> bool:
        """Whether its mean has been asked for and not been waited for."""
        return self._arrival is not None

    def wait(self) -> bool:
        """Waits until the mean is in place. Whether all ranks' numbers were finite; if not, there is nothing of use. Raises what went wrong."""
        arrival, self._arrival = self._arrival, None
        assert arrival is not None, "nothing was asked for"
        arrival.wait()
        return bool(torch.isfinite(self.numbers.sum()))

    def _bucket(self, index: int, is_last: bool, keeps: bool) -> Bucket:
        if keeps:
            self._copy = self.numbers.clone() if self._copy is None else self._copy.copy_(self.numbers)
        self._arrival = Arrival()
        return Bucket(index, is_last, self.numbers, [], self.layout, self._arrival, self._copy)


class Averaging:
    """Averages pieces on a group's pipeline. All ranks make it, and all its calls, alike."""

    def __init__(self, group: Group, process_group: Any, *, feedback: bool, fallback: bool, clock: Clock | None = None) -> None:
        options = Options(
            warmup=0,
            min_size=0,
            exclude=(),
            uncompressed="raw",
            feedback=feedback,
            nonfinite="nan",
            fallback=fallback,
            adapt=None,
            in_flight=3,
            device="host",
        )
        peers = Peers(process_group)
        board = Board(shared_store(peers.rank, Gather(process_group), PATIENCE)) if fallback else None
        compressor = HostCompressor(group, options, peers, None)
        self._fallback = fallback
        self._pipeline = pipeline_of(group)
        self._steps = Steps(
            group, options, peers, board, None, lambda _: compressor, clock or Clock(), None, self._pipeline.put_next
        )
        if board is not None:
            self._pipeline.when_idle(self._steps)

    @property
    def fallback_active(self) -> bool:
        """Whether the parameter server has been lost and means come from the process group."""
        return self._steps.agreement.fallback_active

    @property
    def error(self) -> BaseException | None:
        """Why the parameter server counts as lost, or what ended the work."""
        return self._steps.error

    def begin(self, pieces: Sequence[Piece]) -> None:
        """Asks for the means of these: a step of its own, and all ranks have all of it or none."""
        keeps = self._fallback and not self.fallback_active
        for index, piece in enumerate(pieces):
            bucket = piece._bucket(index, index + 1 == len(pieces), keeps)
            self._pipeline.put(Passage(self._steps, bucket))

    def resume(self) -> bool:
        """After the server was lost and is back: joins anew. All ranks call it between the same steps, with nothing under way."""
        return bool(self._pipeline.ask(self._steps.resume))
