"""The table of what `command.py` has trained."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

Run = dict[str, Any]
SMOOTH = 20
"""Steps that a loss is averaged over where steps to a loss are counted."""
LARGE = 0.001
"""Of all coordinates: parameters from this share on are looked at one by one."""


def _smooth(losses: list[float]) -> list[float]:
    return [sum(losses[max(0, at - SMOOTH + 1) : at + 1]) / len(losses[max(0, at - SMOOTH + 1) : at + 1]) for at in range(len(losses))]


def _step_to_loss(run: Run, loss: float) -> int | None:
    """The first step from which on the smoothed loss has been at or under this."""
    return next((step for step, found in enumerate(_smooth(run["losses"]), 1) if step >= SMOOTH and found <= loss), None)


def _exact(runs: list[Run], run: Run) -> Run | None:
    same = [r for r in runs if (r["task"], r["way"], r["seed"], r["steps"]) == (run["task"], "exact", run["seed"], run["steps"])]
    return next((r for r in same if r["ranks"] == run["ranks"]), same[0] if same else None)


def rows(runs: list[Run]) -> list[dict[str, Any]]:
    """A row for each task, way and number of ranks: means over seeds, each seed against its own exact training."""
    found = []
    keys = dict.fromkeys((r["task"], r["way"], r["ranks"], r["steps"]) for r in runs if r["way"] != "exact")
    for task, way, ranks, steps in keys:
        every = [r for r in runs if (r["task"], r["way"], r["ranks"], r["steps"]) == (task, way, ranks, steps)]
        pairs = [(r, e) for r in every if (e := _exact(runs, r)) is not None]
        if not pairs:
            continue
        more = [r["final"] - e["final"] for r, e in pairs]
        # To 1.5 % above the loss that the exact training ends with, which seeds reach for sure.
        steps_to = [(_step_to_loss(r, e["final"] * 1.015), _step_to_loss(e, e["final"] * 1.015)) for r, e in pairs]
        ratios = [(own or r["steps"]) / (its or e["steps"]) for (own, its), (r, e) in zip(steps_to, pairs)]
        largest = []
        for r, _ in pairs:
            whole = sum(r["sizes"].values())
            large = [error for name, error in r["errors"].items() if name != "all" and r["sizes"][name] > LARGE * whole]
            largest.append(max(large) / r["errors"]["all"] if large else 0.0)
        exacts = [e["final"] for _, e in pairs]
        found.append({
            "task": task, "way": way, "ranks": ranks, "steps": steps, "seeds": len(pairs), "exact": statistics.mean(exacts),
            "spread": max(exacts) - min(exacts), "more": more, "held_out": [r["held_out"] - e["held_out"] for r, e in pairs],
            "accuracy": [r["accuracy"] - e["accuracy"] for r, e in pairs] if pairs[0][0]["accuracy"] is not None else None,
            "steps_to": ratios, "late": sum(own is None for own, _ in steps_to), "nmse": statistics.mean(r["errors"]["all"] for r, _ in pairs),
            "largest": statistics.mean(largest), "cosine": statistics.mean(r["cosine"] for r, _ in pairs),
            "update": statistics.mean(r["update"] for r, _ in pairs), "bits": statistics.mean(r["bits"] for r, _ in pairs),
        })  # fmt: skip
    return found


def table(runs: list[Run]) -> str:
    lines = [
        "| task | way | ranks | steps | seeds | exact loss | over it, each seed | held out | accuracy | steps to loss | NMSE | largest by tensor | update's error | bits up |",
        "| - | - | -: | -: | -: | -: | - | -: | -: | -: | -: | -: | -: | -: |",
    ]
    for row in rows(runs):
        each = " ".join(f"{more:+.3f}" for more in row["more"])
        accuracy = "" if row["accuracy"] is None else f"{100 * statistics.mean(row['accuracy']):+.1f} %"
        late = f" ({row['late']} not)" if row["late"] else ""
        lines.append(
            f"| {row['task']} | {row['way']} | {row['ranks']} | {row['steps']} | {row['seeds']} | {row['exact']:.3f} (spread {row['spread']:.3f}) | {each} | "
            f"{statistics.mean(row['held_out']):+.3f} | {accuracy} | × {statistics.mean(row['steps_to']):.2f}{late} | {row['nmse']:.4f} | "
            f"× {row['largest']:.1f} | {row['update']:.3f} | {row['bits']:.2f} |"
        )
    return "\n".join(lines)


def write(runs: list[Run], folder: Path) -> str:
    """The table."""
    text = table(runs)
    (folder / "results.md").write_text(text + "\n")
    return text
