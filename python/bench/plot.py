"""Loss over time, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from report import NAMES  # noqa: E402

# Told apart by people who see colours differently, and in print by the dashes.
STYLES = {
    "gloo": ("#444444", "-"),
    "fp16": ("#999999", (0, (5, 2))),
    "powersgd1": ("#0072b2", (0, (1, 1.2))),
    "powersgd4": ("#56b4e9", "-"),
    "thc": ("#d55e00", "-"),
    "thc-best-effort": ("#e69f00", (0, (4, 1.5))),
    "thc-adapt": ("#009e73", "-"),
    "thc-raw": ("#cc79a7", (0, (1, 1.2))),
}


def draw(results: dict[str, Any], path: Path, model: str = "heavy") -> None:
    """One panel for each link on which training ran and each number of processes."""
    runs = [r for r in results["training"] if r["model"] == model and r["link"] != "unshaped"]
    links = sorted({r["link"] for r in runs}, key=lambda link: float(link.split()[0]) if " " in link else 99)
    counts = sorted({r["workers"] for r in runs})
    if not runs:
        return
    target = results["targets"][model]
    pyplot.rcParams.update({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "thc"})
    figure, axes = pyplot.subplots(len(counts), len(links), figsize=(4.8 * len(links), 3.3 * len(counts) + 0.7),
                                   squeeze=False, sharey=True)
    for line, count in enumerate(counts):
        for column, link in enumerate(links):
            panel = axes[line][column]
            for method, (color, dashes) in STYLES.items():
                for run in [r for r in runs if (r["workers"], r["link"], r["method"]) == (count, link, method)]:
                    times, losses = [p[1] for p in run["points"]], [p[2] for p in run["points"]]
                    panel.plot(times, losses, color=color, linestyle=dashes, linewidth=1.8, label=NAMES[method].replace("**", ""))
            panel.axhline(target, color="#bbbbbb", linewidth=0.8, zorder=0)
            panel.set_title(f"{count} processes, {link}", fontsize=10)
            panel.set_xlim(left=0)
            panel.set_ylim(top=min(3.6, panel.get_ylim()[1]))
            panel.set_xlabel("seconds of training")
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel("held-out loss, nats per byte")
    handles: dict[str, Any] = {}
    for panel in axes.flat:
        handles.update(zip(*reversed(panel.get_legend_handles_labels())))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=min(6, len(handles)), frameon=False)
    figure.tight_layout(rect=(0, 0.07 if len(counts) > 1 else 0.1, 1, 1))
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
