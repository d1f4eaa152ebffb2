"""Trains small models with exact and with compressed means, by 2 to 16 ranks, and compares where they end.

All ranks of a training are in one process, each with the codec that it would have, and what an aggregator adds up is added up there: no network, and
times mean nothing. A step's examples are the same however many ranks divide them. Trainings that results.json has already are not run again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

from arguments import among, number, several

NAMES = ("gpt2", "resnet")
"""Of tasks.py, which needs torch."""
WAYS = ("exact", "thc", "thc-paper", "late0", "late1", "late2", "late3")
"""Exact means; the default of wrap; THC as published; a job with so many late ranks in each step, whose gradients are dropped."""
ONE_FOR_ALL = frozenset({"gpt2"})
"""Tasks whose exact mean is the same however many ranks there are: not where BatchNorm looks at each rank's examples alone."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench accuracy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=among(NAMES), default=list(NAMES), help=f"tasks, separated by commas ({','.join(NAMES)})")
    parser.add_argument("--ways", type=among(WAYS), default=["exact", "thc", "thc-paper"], help=f"ways, separated by commas, of {', '.join(WAYS)} (exact,thc,thc-paper)")
    parser.add_argument("--ranks", type=several(number(int, 2)), default=[2], help="numbers of ranks, separated by commas (2)")
    parser.add_argument("--seeds", type=number(int, 1), default=3, help="trainings of each way (%(default)s)")
    parser.add_argument("--steps", type=number(int, 20), help="steps of a training (the task's own)")
    parser.add_argument("--limit", type=number(float, 0, above=True), default=60, help="minutes after which no training begins (%(default)s)")
    parser.add_argument("--jobs", type=number(int, 1), default=len(os.sched_getaffinity(0)), help="trainings at a time (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("target/bench-accuracy"), help="folder for results")
    parser.add_argument("--report", action="store_true", help="only make table and accuracy.json from results.json")
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = arguments.out / "results.json"
    done: list[dict[str, Any]] = json.loads(results.read_text()) if results.exists() else []
    if not arguments.report:
        _train(arguments, results, done)
    from accuracy.report import write

    print(write(done, arguments.out))
    print(f"results: {results}, results.md, accuracy.json")
    return 0


def _train(arguments: argparse.Namespace, results: Path, done: list[dict[str, Any]]) -> None:
    wanted = []
    for task in arguments.tasks:
        for seed in range(1, arguments.seeds + 1):
            for way in arguments.ways:
                for ranks in arguments.ranks:
                    if way == "exact" and task in ONE_FOR_ALL and ranks != arguments.ranks[0]:
                        continue
                    wanted.append((task, way, ranks, seed, arguments.steps))
    have = {(run["task"], run["way"], run["ranks"], run["seed"], run["asked"]) for run in done}
    have |= {(task, way, ranks, seed, asked) for task, way, _, seed, asked in have if way == "exact" and task in ONE_FOR_ALL for ranks in arguments.ranks}
    wanted = [each for each in wanted if each not in have]
    began, until = time.monotonic(), time.monotonic() + 60 * arguments.limit
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
        waiting, under = list(wanted), {}
        over = 0
        while waiting or under:
            while waiting and len(under) < arguments.jobs and time.monotonic() < until:
                each = waiting.pop(0)
                under[pool.submit(_one, *each)] = each
            if not under:
                print(f"the time is over; not run: {len(waiting)} trainings (--limit)")
                break
            for future in concurrent.futures.wait(under, return_when=concurrent.futures.FIRST_COMPLETED).done:
                each = under.pop(future)
                run = {**future.result(), "asked": each[4]}
                done.append(run)
                results.write_text(json.dumps(done) + "\n")
                over += 1
                left = (time.monotonic() - began) / over * (len(wanted) - over) / 60
                score = "" if run["accuracy"] is None else f", accuracy {100 * run['accuracy']:.1f} %"
                print(f"{over} of {len(wanted)}, {left:.0f} min left: {run['task']}, {run['way']}, {run['ranks']} ranks, seed {run['seed']}: "
                      f"loss {run['final']:.4f}, held out {run['held_out']:.4f}{score}", flush=True)  # fmt: skip


def _one(task: str, way: str, ranks: int, seed: int, steps: int | None) -> dict[str, Any]:
    from accuracy.training import train

    return train(task, way, ranks, seed, steps)
