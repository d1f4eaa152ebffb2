"""Which layer gets which compression, and what that costs and loses."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from thc.errors import ConfigError

__all__ = ["Plan", "PlanRow", "plot_plan"]


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


_COLOURS = "#08306b #2171b5 #6baed6 #c6dbef #fee6ce #fdae6b #f16913 #a63603".split()
"""From the choice that costs the most to the one that costs the least."""


def plot_plan(plans: Any, path: str | os.PathLike[str]) -> None:
    """Draws choices over training into a file (``.svg``, ``.png``): layers from top to bottom, steps from left to right, and below
    how many times fewer bytes than with the default for all.

    ``plans`` is a hook, or a sequence of :class:`Plan`. Needs matplotlib.
    """
    plans = list(getattr(plans, "plans", plans))
    if not plans:
        raise ConfigError("there is no plan to plot yet: the first choice comes some steps after the start, with Compression(adapt=…)")
    layers = len(plans[0].rows)
    ratios = {"height_ratios": [max(3, layers), 4]}
    with picture(path, 7, 1.8 + 0.16 * layers, rows=2, font=8, sharex=True, gridspec_kw=ratios) as (_, ((upper,), (lower,))):
        _draw(upper, lower, plans)


@contextmanager
def picture(
    path: str | os.PathLike[str], width: float, height: float, rows: int = 1, columns: int = 1, font: int = 10, **options: Any
) -> Iterator[tuple[Any, Any]]:
    """A picture of so many inches and its panels, by row and column; at the end it is written, the same numbers as the same file.

    Needs matplotlib, whose own settings stay as they are.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("pictures need matplotlib (pip install matplotlib)") from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": font, "svg.fonttype": "none", "svg.hashsalt": "thc"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)
        for panel in figure.axes:
            panel.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=120, metadata={"Date": None} if os.fspath(path).endswith(".svg") else None)


def _draw(upper: Any, lower: Any, plans: Sequence[Plan]) -> None:
    layers = [row.layer for row in plans[0].rows]
    costs: dict[str, float] = {}
    for plan in plans:
        for row in plan.rows:
            costs[row.choice] = max(costs.get(row.choice, 0.0), row.cost / max(1, row.size))
    order = sorted(costs, key=lambda choice: -costs[choice])
    colours = {choice: _COLOURS[at * (len(_COLOURS) - 1) // max(1, len(order) - 1)] for at, choice in enumerate(order)}
    ends = [plan.step for plan in plans[1:]]
    ends.append(plans[-1].step + max(1, plans[-1].step - (plans[-2].step if len(plans) > 1 else 0)))
    for plan, end in zip(plans, ends):
        chosen = plan.choices()
        for at, layer in enumerate(layers):
            upper.barh(at, end - plan.step, left=plan.step, height=0.9, color=colours[chosen[layer]])
    upper.set_yticks(range(len(layers)), layers)
    upper.invert_yaxis()
    patches = [upper.barh(0, 0, color=colours[choice], label=choice) for choice in order[:: max(1, len(order) // 12)]]
    upper.legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncol=6, frameon=False)
    edges = [plan.step for plan in plans] + [ends[-1]]
    lower.stairs([plan.ratio for plan in plans], edges, color="#d55e00", linewidth=1.6)
    lower.set_ylim(bottom=0)
    lower.set_ylabel("× fewer bytes")
    lower.set_xlabel("step")
