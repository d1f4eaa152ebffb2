"""A guard: what compression does to the gradients of each parameter, measured while training.

Now and then one bucket's mean is computed twice: as it always travels, and beside it exactly, as 32-bit integers. The distance of the two, over
the exact one's length, squared, is the parameter's NMSE of that step. Buckets take turns, so that a check costs a step no more than
one bucket that travels as f32 does.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import torch

from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.torch.compression.layout import Layout
from thc.torch.ranks.exchange import tells

__all__ = ["Accuracy"]

log = logging.getLogger("thc.torch")

BOUND = 0.1
"""The largest NMSE without a warning: a tenth of the gradient's energy is noise. 4 bits of a Gaussian vector come to 0.01 for one worker."""


class Accuracy:
    """Measures the accuracy of a hook, every so many steps as its option ``check_accuracy`` says."""

    def __init__(self, every: int, group: BaseGroup) -> None:
        if not tells(group):
            raise ConfigError("check_accuracy: a job that may lose packets, or does not wait for all ranks, has no exact mean to compare with: leave it out")
        self._every, self._group = every, group
        self._buckets, self._latest = 1, 0
        self._warned: set[str] = set()

    def is_due(self, step: int, index: int) -> bool:
        """Whether this bucket of this step is looked at; the same on all ranks, which have the same buckets."""
        if index <= self._latest:
            # A step begins, not always with the first bucket: that one may travel another way.
            self._buckets = self._latest + 1
        self._latest = index
        return step % self._every == 0 and index == step // self._every % self._buckets

    def plan(self, layout: Layout) -> list[tuple[int, str]]:
        """How a bucket's exact mean is made: each parameter by its own range."""
        return [(segment.length, "raw") for segment in layout.segments if segment.length]

    def compare(self, layout: Layout, step: int, mean: torch.Tensor, exact: torch.Tensor) -> None:
        """Notes the NMSE of each parameter."""
        found: dict[str, Any] = {}
        for segment in layout.segments:
            true = exact[segment.slice].double()
            lost = (mean[segment.slice].double() - true).square().sum()
            found[segment.name] = torch.stack([lost, true.square().sum()])
        for name, numbers in found.items():
            lost, energy = numbers.tolist()
            nmse = lost / energy if energy else (float("inf") if lost else 0.0)
            self._group.nmse[name] = nmse
            if nmse > BOUND and name not in self._warned:
                self._warned.add(name)
                # A rail has parts of parameters, named after the parameter and the part's place.
                parameter = re.sub(r"\[\d+:\d+\]$", "", name)
                log.warning("the mean of %s had an NMSE of %.3g in step %d, more than %g: exclude=[%r] sends it exactly", name, nmse, step, BOUND, parameter)
