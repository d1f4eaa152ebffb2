"""What a policy costs in accuracy: two small models, trained to the end by some processes over loopback, for several seeds.

Nothing depends on the machine but the order in which ranks come, so it may run beside other work. Times are no result here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from adapt.processes import carry_out
from arguments import among, number

#: What is trained: those of `adapt/tasks.py`, which is not needed to say so.
NAMES = ("convolutions", "transformer")

ADAPT = {"threshold": False, "every": 40}

#: What is compared, as `adapt/rank.py` takes it.
POLICIES: dict[str, dict[str, Any]] = {
    "none": {"family": "none"},
    "thc": {"family": "THC", "layerwise": False},
    "adapt": {"family": "THC", "layerwise": True},
    "backup": {"family": "THC", "overlap": {}},
    "backup-adapt": {"family": "THC", "overlap": {"adapt": ADAPT}},
    "together": {"family": "THC", "overlap": {"adapt": ADAPT, "refine": True}},
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench policies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=among(NAMES), default=list(NAMES), help=f"tasks, separated by commas ({','.join(NAMES)})")
    parser.add_argument("--policies", type=among(POLICIES), default=list(POLICIES), help=f"policies, separated by commas ({','.join(POLICIES)})")
    parser.add_argument("--seeds", type=number(int, 1), default=3, help="trainings of each policy (%(default)s)")
    parser.add_argument("--steps", type=number(int, 1), help="steps of a training (the task's own)")
    parser.add_argument("--workers", type=number(int, 2), default=2, help="processes (%(default)s)")
    parser.add_argument("--limit", type=number(float, 0, above=True), default=30, help="minutes after which to end, with the results so far (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("target/bench-policies"), help="folder for results")
    arguments = parser.parse_args(words)
    runs = [
        {"task": task, "policy": policy, "seed": seed, "layerwise": False, **POLICIES[policy], **({"steps": arguments.steps} if arguments.steps else {})}
        for seed in range(arguments.seeds)
        for task in arguments.tasks
        for policy in arguments.policies
    ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    done: list[dict[str, Any]] = []
    until = time.monotonic() + 60 * arguments.limit
    for run in carry_out(runs, arguments.workers, arguments.out, until, print):
        done.append(run)
        print(f"{len(done)} of {len(runs)}: {run['task']}, {run['policy']}, seed {run['seed']}: loss {run['final']:.4f}, {_score(run)}", flush=True)
        (arguments.out / "results.json").write_text(json.dumps(done, indent=1) + "\n")
        if not run["in_step"]:
            print("replicas differ: that is a fault")
            return 1
    print()
    print(table(done))
    return 0


def _score(run: dict[str, Any]) -> str:
    """Accuracy where a task has it, perplexity elsewhere."""
    from adapt.tasks import TASKS

    return f"{100 * run['score']:.1f} %" if TASKS[run["task"]].score == "accuracy" else f"perplexity {run['score']:.2f}"


def table(runs: list[dict[str, Any]]) -> str:
    """Mean over seeds, and the least and the most."""
    lines = ["| task | policy | seeds | held-out loss | against none | accuracy, or perplexity |", "| - | - | -: | -: | -: | -: |"]

    def select(task: str, policy: str) -> list[dict[str, Any]]:
        return [run for run in runs if (run["task"], run["policy"]) == (task, policy)]

    for task in dict.fromkeys(run["task"] for run in runs):
        base = select(task, "none")
        for policy in POLICIES:
            found = select(task, policy)
            if not found:
                continue
            loss = statistics.mean(run["final"] for run in found)
            against = f"{loss - statistics.mean(run['final'] for run in base):+.4f}" if base else "-"
            each = sorted(found, key=lambda run: run["score"])
            middle = {**found[0], "score": statistics.mean(run["score"] for run in found)}
            lines.append(f"| {task} | {policy} | {len(found)} | {loss:.4f} | {against} | {_score(middle)} ({_score(each[0])} to {_score(each[-1])}) |")
    return "\n".join(lines)
