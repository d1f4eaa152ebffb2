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
rounds correctly, one at a time, in an order that no device and no number of threads changes. On a CPU the codec does them
(`thc_codec::scales`): torch's own square root there is not always the nearest number.
"""

from __future__ import annotations

from typing import Any

import torch

from thc import _native
from thc.torch.replicas.digests import digest
from thc.torch.compression.layout import Layout
from thc.torch.compression.rows import Rows

__all__ = ["Scales"]

MEMORY = 0.9
"""How much of a mean square stays from one step to the next."""
FLOOR = 0.03**2
"""As a share of a parameter's mean square: no coordinate counts as smaller."""
PRIOR = 0.1
"""As a share of a parameter's mean square, divided by the steps seen: a coordinate's first few means show little."""
LARGEST = 1e18
"""Larger means count as this: their squares shall be finite."""
CHAIN = 0x9E37_79B1
"""An odd multiplier, of digests."""
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


def learn_on_device(known: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor | None, memory: float) -> None:
    """Multiplies a mean by its scales, if it has any, and takes its squares into what is known. The same as the codec on a CPU."""
    if scale is not None:
        mean.mul_(scale)
    square = mean.clamp(-LARGEST, LARGEST)
    square.mul_(square)
    # A row that had no gradient on any rank says nothing of those that it will have; the first one says all.
    found = torch.where(known > 0, (known * memory).add_(square * (1.0 - memory)), square)
    torch.where(square > 0, found, known, out=known)


def derive_on_device(square: torch.Tensor, power: float, floor: float, out: torch.Tensor) -> None:
    """The scales of one parameter. The same as the codec on a CPU, where square roots are the nearest numbers, as CUDA's are."""
    if not square.numel():
        return
    total = _total(square)
    # By a tensor: a GPU takes the reciprocal of a plain number, and multiplies by that, which rounds differently.
    usual = total / torch.full_like(total, square.numel())
    share = (square / usual).add_(floor).sqrt_()
    if power == 0.75:
        share.sqrt_()
        share.mul_(share.sqrt())
    elif power == 0.5:
        share.sqrt_()
    # Of a parameter whose means were all zero: 1.
    torch.where(usual > 0, share.mul_(usual.sqrt()), torch.ones_like(usual), out=out)


class _LayoutScales:
    """The scales of one layout."""

    def __init__(self, length: int, device: torch.device) -> None:
        self.square = torch.zeros(length, dtype=torch.float32, device=device)
        self.on_host = device.type == "cpu"
        self.rows: Rows | None = None
        self.scale: torch.Tensor | None = None


class Scales:
    """The scales of a model's parameters, by layout. It follows them when DDP makes other buckets."""

    def __init__(self, power: float, ranks: int) -> None:
        self._power, self._ranks = power, ranks
        self._sparse: set[str] = set()
        """Parameters some of whose rows have no gradient."""
        self._of: dict[int, tuple[Layout, _LayoutScales]] = {}
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
        made = _LayoutScales(layout.sent_length, device)
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
        """The rows that ranks tell each other before a call; ``None`` while means come as they are."""
        return self._of[layout.key][1].rows

    def apply(self, layout: Layout, data: torch.Tensor) -> torch.Tensor | None:
        """Divides what is sent by its scale. Returns that; nothing as long as there is none."""
        scale = self._of[layout.key][1].scale
        if scale is not None:
            data.div_(scale)
        return scale

    def learn(self, layout: Layout, mean: torch.Tensor) -> None:
        """The mean of what has been divided is there, the same on all ranks: multiplies it by its scale, and learns from it."""
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
            if made.scale is not None:
                mean.mul_(made.scale)
            return
        memory = min(MEMORY, seen / (seen + 1))
        if made.on_host:
            scale = None if made.scale is None else made.scale.numpy()
            _native.scales_learn(made.square.numpy(), mean.numpy(), scale, memory)
        else:
            learn_on_device(made.square, mean, made.scale, memory)
        self._follow(layout, made)

    def _follow(self, layout: Layout, made: _LayoutScales) -> None:
        """Makes the scales that mean squares come to."""
        places = layout.feedback_places()
        if any(self._seen[name] == 0 for name, _ in places):
            made.scale = None
            return
        floors = [(place.start, place.stop, max(FLOOR, PRIOR / self._seen[name])) for name, place in places]
        if made.on_host:
            # In place: a layout has one call at a time, whose mean has been multiplied.
            if made.scale is None:
                made.scale = torch.ones_like(made.square)
            _native.scales_derive(made.square.numpy(), made.scale.numpy(), floors, self._power)
            return
        # Not in place: what a stream was given before may still use the old ones.
        scale = torch.ones_like(made.square)
        for start, stop, floor in floors:
            derive_on_device(made.square[start:stop], self._power, floor, scale[start:stop])
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
