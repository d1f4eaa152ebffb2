"""Which layer gets which compression, and what that costs and loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Plan", "PlanRow"]


@dataclass(frozen=True)
class PlanRow:
    """One layer's choice."""

    layer: str
    """The parameter's name."""
    size: int
    """Its coordinates."""
    choice: str
    error: float
    """What it loses, a squared L2 norm; 0 as long as nothing was measured."""
    cost: float
    """Bytes that a rank sends and receives for it in a step."""
    share: float
    """Its share of all bytes."""


@dataclass(frozen=True)
class Plan:
    """A choice for each layer. ``str()`` is a table."""

    step: int
    """From which step on it holds."""
    rows: Sequence[PlanRow]
    uniform: float
    """Bytes with the default for all layers."""
    bound: float
    """What may be lost in all: the default's error."""
    seconds: float = 0.0
    """What measuring, solving and agreeing took on this rank."""
    why: str = ""
    """Where it comes from."""
    cost: float = field(init=False)
    """Bytes of a step."""
    error: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", sum(row.cost for row in self.rows))
        object.__setattr__(self, "error", sum(row.error for row in self.rows))

    @classmethod
    def from_columns(
        cls,
        step: int,
        layers: Sequence[tuple[str, int]],
        choices: Sequence[str],
        errors: Sequence[float],
        costs: Sequence[float],
        **rest: Any,
    ) -> Plan:
        """A plan from columns."""
        total = sum(costs) or 1.0
        rows = [
            PlanRow(name, size, choice, error, cost, cost / total)
            for (name, size), choice, error, cost in zip(layers, choices, errors, costs)
        ]
        return cls(step, rows, **rest)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes than with the default for all."""
        return self.uniform / self.cost if self.cost else 1.0

    def choices(self) -> dict[str, str]:
        """By layer."""
        return {row.layer: row.choice for row in self.rows}

    def as_dict(self) -> dict[str, Any]:
        """For JSON and checkpoints."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Plan:
        """What :meth:`as_dict` made."""
        rows = [PlanRow(**row) for row in saved["rows"]]
        rest = {key: value for key, value in saved.items() if key not in ("rows", "cost", "error")}
        return cls(rows=rows, **rest)

    def __str__(self) -> str:
        head = ("layer", "size", "choice", "error", "bytes", "share")
        cells = [
            (r.layer, f"{r.size}", r.choice, f"{r.error:.2e}", f"{r.cost:.0f}", f"{100 * r.share:.1f} %")
            for r in self.rows
        ]
        widths = [max(len(line[i]) for line in [head, *cells]) for i in range(len(head))]
        text = [
            "  ".join(cell.ljust(width) if i in (0, 2) else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths)))
            for line in [head, *cells]
        ]
        text.append(
            f"from step {self.step} on: {self.cost:.0f} bytes a step, {self.ratio:.2f} × fewer than {self.uniform:.0f}; "
            f"error {self.error:.2e} of {self.bound:.2e} allowed{'; ' if self.why else ''}{self.why}"
        )
        return "\n".join(line.rstrip() for line in text)
