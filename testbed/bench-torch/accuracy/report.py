"""The table of what `command.py` has trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accuracy.tasks import floors

Run = dict[str, Any]
Numbers = dict[str, dict[str, Any]]
"""A number by training (``gpt2/4/1000/thc``: task, ranks, steps, way), what it is, and seed. ``FLOORS`` has the accuracy of guesses by task."""
FLOORS = "floors"


def _exact(runs: list[Run], run: Run) -> Run | None:
    same = [r for r in runs if (r["task"], r["way"], r["seed"], r["steps"]) == (run["task"], "exact", run["seed"], run["steps"])]
    return next((r for r in same if r["ranks"] == run["ranks"]), same[0] if same else None)


def numbers(runs: list[Run]) -> Numbers:
    """Compares each training with the exact one of its seed. Accuracies are in per cent, and their differences in points."""
    found: Numbers = {}
    for run in runs:
        exact = _exact(runs, run)
        if run["way"] == "exact" or exact is None:
            continue
        values = {
            "exact": 100 * exact["accuracy"], "accuracy": 100 * run["accuracy"], "points": 100 * (run["accuracy"] - exact["accuracy"]),
            "exact-loss": exact["held_out"], "loss": run["held_out"] - exact["held_out"], "training": run["final"] - exact["final"],
            "nmse": run["nmse"], "update": run["update"],
        }  # fmt: skip
        row = found.setdefault(f"{run['task']}/{run['ranks']}/{run['steps']}/{run['way']}", {})
        for name, value in values.items():
            row.setdefault(name, {})[str(run["seed"])] = value
    return found


def table(found: Numbers) -> str:
    """A row for each way, with numbers in the order of seeds, and a line with what guesses reach."""
    lines = [
        "| task, ranks, steps | way | accuracy, exact | points above it | training loss above exact | held out | NMSE | error of the update |",
        "|-|-|-|-|-|-|-|-|",
    ]
    for name, row in found.items():
        if name == FLOORS:
            continue
        task, ranks, steps, way = name.split("/")
        seeds = sorted(row["exact"])

        def each(what: str, form: str) -> str:
            return " ".join(format(row[what][seed], form) for seed in seeds)

        def mean(what: str) -> float:
            return sum(row[what].values()) / len(seeds)

        lines.append(
            f"| {task}, {ranks}, {steps} | {way} | {each('exact', '.1f')} | {each('points', '+.1f')} | {each('training', '+.3f')} | "
            f"{each('loss', '+.3f')} | {mean('nmse'):.3f} | {mean('update'):.3f} |"
        )
    guesses = (f"{task} {what} {value:.1f} %" for task, values in found[FLOORS].items() for what, value in values.items())
    return "\n".join([*lines, "", f"Without a model: {', '.join(guesses)}."])


def write(runs: list[Run], folder: Path) -> str:
    """Writes and returns the table, and writes its numbers."""
    found = {**numbers(runs), FLOORS: floors()}
    text = table(found)
    (folder / "results.md").write_text(text + "\n")
    (folder / "accuracy.json").write_text(json.dumps(found, indent=1) + "\n")
    return text
