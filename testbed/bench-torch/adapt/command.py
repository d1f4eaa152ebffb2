"""Per-layer compression against uniform: the tables of L-GreCo's paper in small, on models and data that packages ship.

Run it by `make bench-adapt`; by hand: `python3 testbed/bench-torch adapt --help`. Parts can be run one by one: results of others stay.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arguments import among, number

PARTS = ("tables", "dynamics", "sensitivity")
FAMILIES = ("QSGD", "TopK", "PowerSGD", "THC")
TASKS = ("convolutions", "transformer")
#: The uniform default of a family, as in the paper's tables; ranks in proportion to the models.
DEFAULTS = {("QSGD", "convolutions"): 4, ("QSGD", "transformer"): 4, ("TopK", "convolutions"): 0.01, ("TopK", "transformer"): 0.1,
            ("PowerSGD", "convolutions"): 4, ("PowerSGD", "transformer"): 8, ("THC", "convolutions"): 4, ("THC", "transformer"): 4}


def runs_of_tables(tasks: list[str], families: list[str], seeds: int) -> list[dict[str, Any]]:
    """Uniform and chosen, for each family, and without compression."""
    found = []
    for task in tasks:
        for seed in range(seeds):
            found.append({"part": "tables", "task": task, "family": "none", "layerwise": False, "seed": seed})
            for family in families:
                for layerwise in (False, True):
                    found.append({"part": "tables", "task": task, "family": family, "layerwise": layerwise, "seed": seed,
                                  "default": DEFAULTS[family, task]})
    return found


def runs_of_dynamics() -> list[dict[str, Any]]:
    """PowerSGD on the transformer: uniform, Accordion, L-GreCo, and L-GreCo on top of Accordion."""
    base = {"part": "dynamics", "task": "transformer", "family": "PowerSGD", "seed": 0, "default": 8, "every": 20}
    return [{**base, "layerwise": False, "name": "uniform"},
            {**base, "layerwise": False, "accordion": [4, 16], "name": "Accordion"},
            {**base, "layerwise": True, "name": "L-GreCo"},
            {**base, "layerwise": True, "accordion": [4, 16], "choices": list(range(2, 33)), "name": "L-GreCo + Accordion"}]


def key(run: dict[str, Any]) -> str:
    """What tells runs apart."""
    return json.dumps([run.get(each) for each in ("part", "task", "family", "layerwise", "seed", "name", "default")])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench adapt", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: python3 testbed/bench-torch adapt --parts tables --families TopK --seeds 1")
    parser.add_argument("--parts", type=among(PARTS), default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--families", type=among(FAMILIES), default=list(FAMILIES), help=f"some of {','.join(FAMILIES)}")
    parser.add_argument("--tasks", type=among(TASKS), default=list(TASKS), help=f"some of {','.join(TASKS)}")
    parser.add_argument("--seeds", type=number(int, 1), default=3, help="trainings of each (%(default)s)")
    parser.add_argument("--workers", type=number(int, 2), default=2, help="processes (%(default)s)")
    parser.add_argument("--steps", type=number(int, 60), help="steps of a training, instead of the task's")
    parser.add_argument("--limit", type=number(float, 0, above=True), default=30, help="most minutes (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("target/bench-adapt"), help="folder for results (%(default)s)")
    parser.add_argument("--missing", action="store_true", help="run only trainings that the results lack")
    parser.add_argument("--report", action="store_true", help="only make tables of what was measured before")
    arguments = parser.parse_args(argv)

    import importlib.util

    for module, package in (("torch", "torch"), ("sklearn", "scikit-learn")):
        if importlib.util.find_spec(module) is None:
            print(f"not run: Python has no {module} (pip install {package})")
            return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "adapt.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"runs": {}}
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", flush=True)

    def save() -> None:
        path.write_text(json.dumps(results, indent=1) + "\n")

    if not arguments.report:
        from machine import machine

        results["machine"] = machine()
        measure(arguments, results, save, say, started + 60 * arguments.limit)
    from adapt import report

    made = report.write(results, arguments.out)
    print(made.read_text())
    print(f"results: {path}, {made}")
    return 0


def measure(arguments: argparse.Namespace, results: dict[str, Any], save: Callable[[], None], say: Callable[[str], None],
            until: float) -> None:
    """Does the parts asked for, and keeps what was measured after each run."""
    runs: list[dict[str, Any]] = []
    if "tables" in arguments.parts:
        runs += runs_of_tables(arguments.tasks, arguments.families, arguments.seeds)
    if "dynamics" in arguments.parts:
        runs += runs_of_dynamics()
    if arguments.steps:
        runs = [{**run, "steps": arguments.steps} for run in runs]
    if arguments.missing:
        runs = [run for run in runs if key(run) not in results["runs"]]
    if runs:
        from adapt.processes import carry_out

        for run in carry_out(runs, arguments.workers, arguments.out, until, say):
            results["runs"][key(run)] = run
            save()
            say(f"{run['part']}: {run['task']}, {run['family']}, {run.get('name', 'L-GreCo' if run['layerwise'] else 'uniform')}, "
                f"seed {run['seed']}: loss {run['final']:.4f}, {run.get('ratio', 1):.1f} × fewer bytes, {run['seconds']:.0f} s")
    if "sensitivity" in arguments.parts:
        if time.monotonic() < until:
            from adapt.sensitivity import sensitivity

            results["sensitivity"] = sensitivity(say)
            save()
        else:
            say("not run: sensitivity: time is up")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
