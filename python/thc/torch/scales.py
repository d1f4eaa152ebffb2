"""Scales: what each coordinate is divided by before it is compressed, and its mean multiplied by.

A block of the codec spreads its error evenly over its coordinates. Gradients are anything but even: a coordinate that is a hundred times
smaller than its neighbours gets an error far larger than itself, and Adam, which divides each by its own size, makes steps of full size
of it. Divided by their usual sizes, coordinates are alike, and each gets an error in proportion to itself; at no byte, since
all ranks derive the sizes from the means that they have in common.

The scale of a coordinate is √V · (v / V + f)^(power / 2): v is the mean square of its past means, V that of the whole parameter, f a floor.
With power 1 the error follows each coordinate's size, which is what Adam bears best; with 1/2 the error of the parameter is least (both
by Cauchy and Schwarz). 3/4, the default, is nearly as good as either in its own measure. Gradients travel as they are until there are means,
in the first step, whose errors Adam would keep longest.

All ranks must have the same bits, whatever they compute on. So there is nothing in here but operations on single numbers that IEEE 754
rounds correctly, one at a time, in an order that no device and no number of threads changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from thc.torch.digests import digest
from thc.torch.layout import Layout
from thc.torch.rows import Rows

__all__ = ["Scales"]

MEMORY = 0.9
"""How much of a mean square stays from one step to the next."""
FLOOR = 0.03**2
"""Of a parameter's mean square: no coordinate counts as smaller."""
PRIOR = 0.1
"""Of a parameter's mean square, over the steps seen: what one coordinate's first few means show is little."""
LARGEST = 1e18
"""Larger means count as this: their squares shall be finite."""
CHAIN = 0x9E37_79B1
"""An odd multiplier, of digests."""
PIECE = 1 << 15
"""Coordinates that are worked on at a time on a CPU."""
EAGER, EVERY = 64, 4
"""Scales follow the first so many steps at each one, later every so many."""


def _total(x: torch.Tensor) -> torch.Tensor:
    """The sum of a vector, in an order of its own: halves are added coordinate by coordinate."""
    while (length := x.numel()) > 1:
        half = length // 2
        folded = x[:half] + x[half : 2 * half]
        if length % 2:
            folded[:1] += x[2 * half :]
        x = folded
    return x


def _pieces(*vectors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Vectors of one length, on a CPU in pieces that stay in its caches while many operations are done with them."""
    step = PIECE if vectors[0].device.type == "cpu" else max(1, vectors[0].numel())
    return zip(*(vector.split(step) for vector in vectors))


class _Of:
    """Of one layout."""

    def __init__(self, length: int, device: torch.device) -> None:
        self.square = torch.zeros(length, dtype=torch.float32, device=device)
        self.rows: Rows | None = None
        self.scale: torch.Tensor | None = None


class Scales:
    """Of the parameters of a model, by layout. It follows them when DDP makes other buckets."""

    def __init__(self, power: float, ranks: int) -> None:
        self._power, self._ranks = power, ranks
        self._sparse: set[str] = set()
        """Parameters some of whose rows have no gradient."""
        self._of: dict[int, tuple[Layout, _Of]] = {}
        self._aside: dict[str, torch.Tensor] = {}
        """Mean squares of parameters that wait for the next layout that has them."""
        self._seen: dict[str, int] = {}
        """Means of each parameter so far."""
        self.digest = 0
        """32 bits that differ if ranks have other scales: where they came from, and how many means they have seen since."""

    def is_settled(self, layout: Layout) -> bool:
        """Whether :meth:`settle` has nothing to do. If not, nothing else may be under way."""
        return layout.key in self._of

    def settle(self, layout: Layout, device: torch.device) -> None:
        """Before a call: the parameters of this layout are where it has them."""
        if self.is_settled(layout):
            return
        places = layout.feedback_places()
        if any(name in self._seen and name not in self._aside for name, _ in places):
            self._take_all()
        made = _Of(layout.sent_length, device)
        for name, place in places:
            found = self._aside.pop(name, None)
            if found is not None and found.numel() == place.stop - place.start:
                made.square[place] = found.to(device)
            else:
                self._seen[name] = 0
        self._of[layout.key] = (layout, made)
        self._follow(layout, made)
        if made.scale is not None:
            made.rows = Rows(layout, self._ranks, sorted(self._sparse))

    def rows(self, layout: Layout) -> Rows | None:
        """Those that are told of before a call; nothing while means come as they are."""
        return self._of[layout.key][1].rows

    def apply(self, layout: Layout, data: torch.Tensor) -> torch.Tensor | None:
        """Divides what is sent by its scale. Returns that, to multiply the mean by; nothing as long as there is none."""
        scale = self._of[layout.key][1].scale
        if scale is not None:
            data.div_(scale)
        return scale

    def learn(self, layout: Layout, mean: torch.Tensor) -> None:
        """A mean is there, the same on all ranks."""
        made = self._of[layout.key][1]
        places = layout.feedback_places()
        seen = min((self._seen[name] for name, _ in places), default=0)
        if made.scale is None:
            # It has come as it was.
            self._sparse.difference_update(name for name, _ in places)
            self._sparse.update(Rows.sparse(layout, mean))
            made.rows = Rows(layout, self._ranks, sorted(self._sparse))
        for name, _ in places:
            self._seen[name] += 1
        self.digest = (self.digest * CHAIN + 1) & 0xFFFF_FFFF
        if seen >= EAGER and seen % EVERY:
            return
        memory = min(MEMORY, seen / (seen + 1))
        on_host = mean.device.type == "cpu"
        for known, piece in _pieces(made.square, mean):
            square = piece.clamp(-LARGEST, LARGEST)
            square.mul_(square)
            if on_host and bool(known.min() > 0) and bool(square.min() > 0):
                # The same as below, where nothing is to be chosen.
                known.mul_(memory).add_(square.mul_(1.0 - memory))
                continue
            # A row that had no gradient on any rank says nothing of those that it will have; the first one says all.
            found = torch.where(known > 0, (known * memory).add_(square * (1.0 - memory)), square)
            torch.where(square > 0, found, known, out=known)
        self._follow(layout, made)

    def _follow(self, layout: Layout, made: _Of) -> None:
        """Makes the scales that mean squares come to."""
        places = layout.feedback_places()
        if any(self._seen[name] == 0 for name, _ in places):
            made.scale = None
            return
        on_host = made.square.device.type == "cpu"
        # Not in place: a call may still use the old ones.
        scale = torch.ones_like(made.square)
        for name, place in places:
            seen = self._seen[name]
            square = made.square[place]
            usual = _total(square) / square.numel()
            root, one = usual.sqrt(), torch.ones_like(usual)
            for piece, out in _pieces(square, scale[place]):
                share = (piece / usual).add_(max(FLOOR, PRIOR / seen)).sqrt_()
                if self._power == 0.75:
                    share.sqrt_()
                    share.mul_(share.sqrt())
                elif self._power == 0.5:
                    share.sqrt_()
                if on_host and bool(usual > 0):
                    torch.mul(share, root, out=out)
                else:
                    # A parameter whose means were all zero.
                    torch.where(usual > 0, share.mul_(root), one, out=out)
        made.scale = scale

    def _take_all(self) -> None:
        self._aside.update(self._read())
        self._of.clear()

    def _read(self) -> dict[str, torch.Tensor]:
        return {name: made.square[place] for layout, made in self._of.values() for name, place in layout.feedback_places()}

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: mean squares by parameter, and how many means each has seen. The same on all ranks."""
        found = {**self._aside, **self._read()}
        return {"seen": dict(self._seen), "sparse": sorted(self._sparse), "squares": {name: square.cpu().clone() for name, square in sorted(found.items())}}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Goes on from there; from a checkpoint without scales, as at the beginning."""
        self.reset()
        if state is None:
            return
        self._sparse.update(state["sparse"])
        for name, square in state["squares"].items():
            self._aside[name] = square.detach().to("cpu", torch.float32).reshape(-1).clone()
            self._seen[name] = int(state["seen"][name])
            self.digest = (self.digest * CHAIN + digest(self._aside[name]) + self._seen[name]) & 0xFFFF_FFFF

    def reset(self) -> None:
        """Forgets all."""
        self._of.clear()
        self._aside.clear()
        self._seen.clear()
        self._sparse.clear()
        self.digest = 0
