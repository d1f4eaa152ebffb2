"""Loss of a disturbed and an undisturbed run over steps, and what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thc.torch.adapt.plot import picture


def draw(results: dict[str, Any], path: Path) -> None:
    """Above the losses, below how many ranks took part, with what was done to them."""
    with picture(path, 8, 5, rows=2, sharex=True, gridspec_kw={"height_ratios": (3, 1)}) as (figure, ((above,), (below,))):
        for name, color, dashes in (("undisturbed", "#444444", (0, (5, 2))), ("disturbed", "#d55e00", "-")):
            if name in results and results[name]["loss"]:
                above.plot(*zip(*results[name]["loss"]), color=color, linestyle=dashes, linewidth=1.8, label=name)
        run = results["disturbed"]
        changes = [*run["members"], (run["steps"], run["members"][-1][1] if run["members"] else 0)]
        below.step([step for step, _ in changes], [members for _, members in changes], where="post", color="#d55e00", linewidth=1.5)
        marks = {"a rank is killed": ("v", "#000000"), "a rank is added": ("^", "#0072b2"), "the aggregator is killed": ("X", "#cc0000")}
        for what, (marker, color) in marks.items():
            steps = [event["step"] for event in run["events"] if event["what"] == what]
            below.plot(steps, [0.4] * len(steps), linestyle="none", marker=marker, color=color, markersize=6, label=what)
            if what == "the aggregator is killed":
                for step in steps:
                    above.axvline(step, color=color, linewidth=0.8, alpha=0.6)
        above.set_ylabel("held-out loss, nats per byte")
        above.legend(frameon=False)
        below.set_ylabel("ranks")
        below.set_ylim(0, max((members for _, members in changes), default=1) + 0.5)
        below.set_xlabel("steps")
        below.set_xlim(left=0)
        figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncol=3, frameon=False)
