"""One worker that is several times slower than the others: ways to train, by the clock.

Four ranks train on this machine. The last one sleeps, in proportion to what its gradients take, so that each takes `--slow` times as long. A
gradient takes `--pace` seconds at least: what is computed is computed, the rest is slept, so that several ranks fit on few cores and their speed
depends less on who else uses them. Nothing else is made up. The ways take turns, seed by seed. All of them end after as many seconds, and are held against the loss that
synchronous THC has then, with the same seed: how many times sooner a way has reached it, and what its own loss is at the end. The loss is that
of held-out data at rank 0's parameters; at the end, where ranks have parameters of their own, at their mean. All ranks share this machine's cores, with one another
and with other programs, so a second is not the same in all runs: "in gradients" counts the time in gradients of a quick worker of that run.

A run that the folder's results.json has already is not run again, so what was ended goes on. `--seconds 0` only reports.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from arguments import among, number, several
from straggler.report import WAYS, draw, table

MODELS = {"transformer": (90.0, 0.5), "cnn": (25.0, 0.0), "small": (3.0, 0.0)}
"""Seconds of a run, and of a gradient at least."""
RATES = {
    "transformer": {"sync": 1e-3, "quorum": 1e-3, "outer": 1e-3, "averaging": 1e-3, "async": 5e-4},
    "cnn": {"sync": 4e-3, "quorum": 4e-3, "outer": 4e-3, "averaging": 4e-3, "async": 2e-3},
}
"""Of Adam: usual ones. An asynchronous step has one worker's gradient, of an older model, and half the rate."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench straggler", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=among(MODELS), default=["transformer", "cnn"],
                        help="models, separated by commas (transformer,cnn); small: a transformer of 0.1 million parameters")
    parser.add_argument("--ways", type=among(WAYS), default=list(WAYS), help=f"ways, separated by commas ({','.join(WAYS)})")
    parser.add_argument("--seeds", type=number(int, 1), default=3, help="seeds of parameters and batches (%(default)s)")
    parser.add_argument("--rates", type=several(number(float, 0, above=True)), help="learning rates of Adam to try for each way, separated by commas; the one with the least loss counts")
    parser.add_argument("--seconds", type=number(float, 0), help="seconds of each run (transformer 90, cnn 25, small 3)")
    parser.add_argument("--workers", type=number(int, 2), default=4, help="ranks (%(default)s)")
    parser.add_argument("--slow", type=number(float, 1), default=4.0, help="how many times slower the last one is (%(default)s)")
    parser.add_argument("--pace", type=number(float, 0), help="fewest seconds that a gradient takes; the rank sleeps for the rest (transformer 0.5, others 0)")
    parser.add_argument("--limit", type=number(float, 0, above=True), default=60.0, help="minutes after which no run begins (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("target/bench-straggler"), help="folder for results")
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "results.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if arguments.seconds != 0:
        # So that ranks are ended, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        from machine import machine

        found.setdefault("machine", machine())
        found.setdefault("runs", [])
        _run_all(arguments, found, file)
    if not found.get("runs"):
        print(f"not run: {file} has no runs")
        return 1
    text = table(found)
    (arguments.out / "results.md").write_text(text + "\n")
    draw(found, arguments.out / "loss.svg")
    print(text)
    print(f"results: {file}, results.md, loss.svg")
    return 0


def _orders(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All runs that are asked for: the ways take turns, seed by seed."""
    orders = []
    for seed in range(1, arguments.seeds + 1):
        for model in arguments.models:
            seconds, pace = MODELS[model]
            for way in arguments.ways:
                for rate in arguments.rates or [RATES["cnn" if model == "cnn" else "transformer"][way]]:
                    orders.append({
                        "model": model, "way": way, "rate": rate, "seed": seed, "workers": arguments.workers, "slow": arguments.slow,
                        "pace": pace if arguments.pace is None else arguments.pace, "seconds": arguments.seconds or seconds, "evaluations": 16,
                    })  # fmt: skip
    return orders


def _run_all(arguments: argparse.Namespace, found: dict[str, Any], file: Path) -> None:
    began = time.monotonic()
    orders = _orders(arguments)
    orders = [order for order in orders if not any(all(run.get(key) == value for key, value in order.items()) for run in found["runs"])]
    for number, order in enumerate(orders):
        passed = time.monotonic() - began
        name = f"{order['model']}, seed {order['seed']}, {order['way']}, rate {order['rate']:g}"
        if passed > 60 * arguments.limit:
            print(f"not run: {name}: {arguments.limit:g} minutes are over (--limit)", flush=True)
            continue
        load = os.getloadavg()[0]
        one = _run(order)
        left = f"{(len(orders) - number - 1) * (time.monotonic() - began) / (number + 1) / 60:.0f} minutes left"
        if one is None:
            print(f"not run: {name}: a rank has failed or hung; {left}", flush=True)
            continue
        found["runs"].append(order | one | {"load": load})
        file.write_text(json.dumps(found, indent=1) + "\n")
        steps = ", ".join(str(rank["steps"]) for rank in one["ranks"])
        print(f"{time.monotonic() - began:5.0f} s  {name}: loss {one['points'][-1][1]:.4f}, steps {steps}; {left}", flush=True)


def _rank(order: dict[str, Any], rank: int, port: int, report: str) -> None:
    from straggler.rank import work

    work(order, rank, port, report)


def _run(order: dict[str, Any]) -> dict[str, Any] | None:
    """All ranks of a run; `None` if one of them fails or hangs."""
    from crew import free_port

    # Ranks are copies of a process that has PyTorch already.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "sklearn.datasets", "straggler.rank"])
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.json"
        order = order | {"secret": secrets.token_hex(16)}
        port = free_port()
        ranks = [context.Process(target=_rank, args=(order, rank, port, report)) for rank in range(order["workers"])]
        for process in ranks:
            process.start()
        until = time.monotonic() + 3 * order["seconds"] + 240
        try:
            while any(process.exitcode is None for process in ranks):
                if any(process.exitcode for process in ranks) or time.monotonic() > until:
                    return None
                ranks[0].join(0.2) if ranks[0].exitcode is None else time.sleep(0.2)
        finally:
            for process in ranks:
                process.kill()
                process.join()
        if any(process.exitcode for process in ranks) or not Path(report).exists():
            return None
        one: dict[str, Any] = json.loads(Path(report).read_text())
        return one


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
