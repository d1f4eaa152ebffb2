"""Means that nobody waits for at once, and that come from the process group when the parameter server is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thc.group import Group
from thc.torch.adapt_options import Adapt
from thc.torch.adaptive import Adaptive
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
from thc.torch.refining import Refine, Refining, check_alike
from thc.torch.steps import Steps
from thc.torch.store import shared_store
from thc.torch.updates import Arrival, Further

__all__ = ["Averaging", "Piece"]

PATIENCE = 10.0
"""Seconds that the board may take to answer."""


class Piece:
    """Numbers that are averaged together, again and again: f32 on the CPU, in place. ``names`` are those of its parts, one after
    the other, with their lengths."""

    def __init__(self, name: str, numbers: torch.Tensor, compressed: bool, names: Mapping[str, int] | None = None) -> None:
        self.numbers = numbers
        segments, at = [], 0
        for part, length in (names or {"all": numbers.numel()}).items():
            segments.append(Segment(part, at, length, compressed))
            at += length
        self.layout = Layout(name, segments)
        self._copy: torch.Tensor | None = None
        self._arrival: Arrival | None = None
        self._further: Further | None = None

    @property
    def under_way(self) -> bool:
        """Whether its mean has been asked for and not been waited for."""
        return self._arrival is not None

    def arrive(self) -> None:
        """Waits until the mean that this rank has asked for is there, which may still be refined: what of a step is refined is known when
        its last piece is there."""
        if self._arrival is not None:
            self._arrival.wait()

    def wait(self) -> bool:
        """Waits until the mean is in place. Whether all ranks' numbers were finite; if not, there is nothing of use. Raises what went wrong."""
        arrival, self._arrival = self._arrival, None
        assert arrival is not None, "nothing was asked for"
        arrival.wait()
        further, self._further = self._further, None
        if further is not None:
            further.wait()
            for buffer, _ in further.calls:
                self.numbers.add_(buffer)
        return bool(torch.isfinite(self.numbers.sum()))

    def _bucket(self, index: int, is_last: bool, keeps: bool) -> Bucket:
        if keeps:
            self._copy = self.numbers.clone() if self._copy is None else self._copy.copy_(self.numbers)
        self._arrival, self._further = Arrival(), None
        return Bucket(index, is_last, self.numbers, [], self.layout, self._arrival, self._copy)


class _Later:
    """Uses the means of pieces when training has computed another step."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pieces: Sequence[Piece] = ()
        self._began: float | None = None
        self._span: float | None = None

    def begin(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._began = self._clock.compute_time()

    def note_need(self) -> None:
        now = self._clock.compute_time()
        if now is not None and self._began is not None:
            self._span = now - self._began

    def owns(self, parameters: Sequence[torch.nn.Parameter]) -> bool:
        return True

    def use_time(self, parameters: Sequence[torch.nn.Parameter]) -> float | None:
        return self._span

    def expect(self, bucket: Bucket) -> Further:
        further = self._pieces[bucket.index]._further = Further()
        return further

    def announce(self) -> None:
        pass  # each piece knows


class Averaging:
    """Averages pieces on a group's pipeline. All ranks make it, and all its calls, alike."""

    def __init__(
        self,
        group: Group,
        process_group: Any,
        *,
        feedback: bool,
        fallback: bool,
        clock: Clock | None = None,
        adapt: Adapt | None = None,
        refine: Refine | None = None,
        names: Mapping[str, int] | None = None,
    ) -> None:
        """With ``adapt``, ``names`` are those of all parts of pieces."""
        options = Options(
            warmup=0,
            min_size=0,
            exclude=(),
            uncompressed="raw",
            feedback=feedback,
            nonfinite="nan",
            fallback=fallback,
            adapt=adapt,
            in_flight=3,
            device="host",
            refine=refine,
        )
        peers = Peers(process_group)
        board = Board(shared_store(peers.rank, Gather(process_group), PATIENCE)) if fallback else None
        check_alike(refine, peers)
        adaptive = None if adapt is None else Adaptive.create(adapt, group, peers, names or {})
        self._compressor = compressor = HostCompressor(group, options, peers, adaptive)
        clock = clock or Clock()
        self._later = _Later(clock)
        self.adaptive = adaptive
        self.refining = None if refine is None else Refining(refine, group, self._later, adaptive, behind=True)
        self._fallback = fallback
        self._pipeline = pipeline_of(group)
        self._steps = Steps(
            group, options, peers, board, adaptive, lambda _: compressor, clock, self.refining, self._pipeline.put_next
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
        self._later.begin(pieces)
        for index, piece in enumerate(pieces):
            # Also while the server is lost: it may be taken back at the end of a step that is still under way.
            bucket = piece._bucket(index, index + 1 == len(pieces), self._fallback)
            self._pipeline.put(Passage(self._steps, bucket))

    def note_need(self) -> None:
        """Training is about to wait for what it has asked for."""
        self._later.note_need()

    def resume(self) -> bool:
        """After the server was lost and is back: joins anew. All ranks call it between the same steps, with nothing under way."""
        return bool(self._pipeline.ask(self._steps.resume))

    def state_dict(self) -> dict[str, Any]:
        """This rank's error feedback by part, and with ``adapt`` steps and choices. Nothing is under way."""

        def save() -> dict[str, Any]:
            state: dict[str, Any] = {"feedback": self._compressor.feedback.save()}
            if self.adaptive is not None:
                state |= {"averaged": self._steps.number, "adapt": self.adaptive.state_dict()}
            return state

        found: dict[str, Any] = self._pipeline.ask(save)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called. Nothing is under way."""

        def load() -> None:
            self._compressor.feedback.load(state["feedback"])
            if self.adaptive is not None and "adapt" in state:
                # Choices go by steps; those that ranks agree on when the server is lost are counted by themselves.
                self._steps.number = int(state["averaged"])
                self.adaptive.load_state_dict(state["adapt"], self._steps.number)

        self._pipeline.ask(load)
