"""Choices over training as a picture, and how the pictures of this package and of its benchmarks begin and are saved."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from thc.errors import ConfigError
from thc.torch.adapt.plan import Plan

__all__ = ["plot_plan"]

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
