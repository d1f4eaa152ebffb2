"""The table of what `command.py` has trained."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

Run = dict[str, Any]


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
        exacts = [e["final"] for _, e in pairs]
        found.append({
            "task": task, "way": way, "ranks": ranks, "steps": steps, "seeds": len(pairs), "exact": statistics.mean(exacts),
            "spread": max(exacts) - min(exacts), "more": more, "held_out": [r["held_out"] - e["held_out"] for r, e in pairs],
            "accuracy": [r["accuracy"] - e["accuracy"] for r, e in pairs] if pairs[0][0]["accuracy"] is not None else None,
            "nmse": statistics.mean(r["nmse"] for r, _ in pairs), "update": statistics.mean(r["update"] for r, _ in pairs),
        })  # fmt: skip
    return found


def table(runs: list[Run]) -> str:
    lines = [
        "| task | way | ranks | steps | seeds | exact loss | over it, each seed | held out | accuracy | NMSE | update's error |",
        "| - | - | -: | -: | -: | -: | - | -: | -: | -: | -: |",
    ]
    for row in rows(runs):
        each = " ".join(f"{more:+.3f}" for more in row["more"])
        accuracy = "" if row["accuracy"] is None else f"{100 * statistics.mean(row['accuracy']):+.1f} %"
        lines.append(
            f"| {row['task']} | {row['way']} | {row['ranks']} | {row['steps']} | {row['seeds']} | {row['exact']:.3f} (spread {row['spread']:.3f}) | {each} | "
            f"{statistics.mean(row['held_out']):+.3f} | {accuracy} | {row['nmse']:.4f} | {row['update']:.3f} |"
        )
    return "\n".join(lines)


def write(runs: list[Run], folder: Path) -> str:
    """The table."""
    text = table(runs)
    (folder / "results.md").write_text(text + "\n")
    return text
