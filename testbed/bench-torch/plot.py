"""Loss over time, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from report import NAMES
from thc.torch.adapt.plot import picture

# Told apart by people who see colours differently, and in print by the dashes.
STYLES = {
    "gloo": ("#444444", "-"),
    "fp16": ("#999999", (0, (5, 2))),
    "bf16": ("#999999", (0, (1, 1))),
    "powersgd1": ("#0072b2", (0, (1, 1.2))),
    "powersgd4": ("#56b4e9", "-"),
    "thc": ("#d55e00", "-"),
    "thc-best-effort": ("#e69f00", (0, (4, 1.5))),
    "thc-adapt": ("#009e73", "-"),
    "thc-lanes": ("#d55e00", (0, (4, 2))),
    "thc-raw": ("#cc79a7", (0, (1, 1.2))),
    "thc-outer": ("#000000", (0, (3, 1, 1, 1))),
    "thc-backup": ("#8c510a", (0, (6, 1))),
}


def draw(results: dict[str, Any], path: Path, model: str = "heavy") -> None:
    """One panel for each link on which training ran and each number of processes; a panel without a run is left out."""
    runs = [r for r in results["training"] if r["model"] == model and r["link"] != "unshaped"]
    links = sorted({r["link"] for r in runs}, key=lambda link: float(link.split()[0]) if " " in link else 99)
    counts = sorted({r["workers"] for r in runs})
    if not runs:
        return
    target = results["targets"][model]
    with picture(path, 4.8 * len(links), 3.3 * len(counts) + 0.8, len(counts), len(links), sharey=True) as (figure, axes):
        for line, count in enumerate(counts):
            for column, link in enumerate(links):
                panel = axes[line][column]
                if not any((r["workers"], r["link"]) == (count, link) for r in runs):
                    panel.remove()
                    continue
                for method, (color, dashes) in STYLES.items():
                    for run in [r for r in runs if (r["workers"], r["link"], r["method"]) == (count, link, method)]:
                        times, losses = [p[1] for p in run["points"]], [p[2] for p in run["points"]]
                        panel.plot(times, losses, color=color, linestyle=dashes, linewidth=1.8, label=NAMES[method].replace("**", "").replace("`", ""))
                panel.axhline(target, color="#bbbbbb", linewidth=0.8, zorder=0)
                panel.set_title(f"{count} processes, {link}", fontsize=10)
                panel.set_xlim(left=0)
                panel.set_xlabel("seconds of training")
                if not any(other.get_ylabel() for other in axes[line][:column] if other.figure):
                    panel.tick_params(labelleft=True)
                    panel.set_ylabel("held-out loss, nats per byte")
        # All curves to their ends, but of their beginnings, which are alike, only what the eye can tell apart from there.
        losses = [p[2] for r in runs for p in r["points"]]
        highest = min(max(losses), target + 2.5 * max(0.1, target - min(losses)))
        for panel in figure.axes:
            panel.set_ylim(min(losses) - 0.02, highest)
        handles: dict[str, Any] = {}
        for panel in figure.axes:
            handles.update(zip(*reversed(panel.get_legend_handles_labels())))
        # Five names fit under two panels.
        columns = min(5 * len(links) // 2, len(handles))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncol=columns, frameon=False)


def curves(panels: Sequence[tuple[str, Sequence[tuple[str, tuple[str, Any], Sequence[Sequence[Sequence[float]]]]]]], path: Path, label: str) -> None:
    """A panel for each title with a line for each name and style: the mean of its runs' points (seconds, loss), and each run thin."""
    from matplotlib import ticker

    with picture(path, 4.8 * len(panels), 4.1, columns=len(panels)) as (figure, axes):
        for panel, (title, lines) in zip(axes[0], panels):
            for name, (color, dashes), runs in lines:
                times = np.linspace(0, min(run[-1][0] for run in runs), 65)
                losses = [np.interp(times, *np.array(run).T) for run in runs]
                for loss in losses if len(losses) > 1 else []:
                    panel.plot(times, loss, color=color, linestyle=dashes, linewidth=0.5, alpha=0.5)
                panel.plot(times, np.mean(losses, axis=0), color=color, linestyle=dashes, linewidth=1.8, label=name)
            panel.set_title(title, fontsize=10)
            panel.set(xlabel="seconds of training", ylabel=label, yscale="log", xlim=(0, None))
            panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 3, 5)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter(ticker.NullFormatter())
        handles = dict(zip(*reversed(axes[0][0].get_legend_handles_labels())))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncol=3, frameon=False)
