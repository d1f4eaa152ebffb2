"""All-reduces whose compression runs where the gradients are."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from thc.base_group import BaseGroup
from thc.torch.device.call import Call
from thc.torch.device.context import DeviceContext
from thc.torch.device.cut import Cut, sizes_of

__all__ = ["DeviceCodec"]

PIECE = 20
"""log2 of the coordinates that are copied between device and host at a time."""


class DeviceCodec(DeviceContext):
    """Averages tensors of one device through a group."""

    calls: type[Call] = Call
    """What is begun."""

    def __init__(self, group: BaseGroup, device: torch.device, kernels: ModuleType, piece: int = PIECE) -> None:
        super().__init__(group, device, kernels)
        self._piece = piece
        self._tables = group.tables
        self._sizes = sizes_of(self._tables)
        self._cuts: dict[tuple[tuple[int, int | None], ...], Cut] = {}

    def cut(self, plan: tuple[tuple[int, int | None], ...]) -> Cut:
        """How a plan cuts a tensor."""
        found = self._cuts.get(plan)
        if found is None:
            found = self._cuts[plan] = Cut(self.group._library, self._sizes, list(plan), self._piece)
        return found

    def begin(
        self,
        x: torch.Tensor,
        feedback: int | None = None,
        plan: list[tuple[int, int | str]] | None = None,
        mode: str = "compressed",
        ready: Any = None,
    ) -> Call:
        """Starts an all-reduce of a tensor of f32, f16 or bf16, one-dimensional and contiguous: the norms are on their way to the
        host when it returns. ``ready`` is an event after which the tensor is there; without, it is on the current stream. Other
        parameters: see :meth:`thc.Group.allreduce`. Caller must be begun, submitted and finished in the same order on all ranks,
        and nobody may use the tensor until the call is finished."""
        spans, feedback = self._spans(x, feedback, plan, mode)
        return self.calls(self, self.cut(spans), x, feedback, ready)

    def _spans(
        self, x: torch.Tensor, feedback: int | None, plan: list[tuple[int, int | str]] | None, mode: str
    ) -> tuple[tuple[tuple[int, int | None], ...], int | None]:
        """A call's plan, and the key of its error feedback."""
        if plan is not None:
            return tuple((length, None if isinstance(choice, str) else choice) for length, choice in plan), feedback
        if mode == "raw":
            # What goes RAW without a plan takes no error feedback along.
            return ((x.numel(), None),), None
        return ((x.numel(), self._tables[0].id),), feedback

    def allreduce(
        self,
        x: torch.Tensor,
        feedback: int | None = None,
        plan: list[tuple[int, int | str]] | None = None,
        mode: str = "compressed",
        ready: Any = None,
    ) -> Any:
        """The same to its end, but for the last kernels on a GPU: what is returned is an event after which the mean is in the
        tensor, nothing on the CPU. Raises what :meth:`thc.Group.allreduce` raises."""
        call = self.begin(x, feedback, plan, mode, ready)
        call.submit()
        call.feed()
        return call.finish()
