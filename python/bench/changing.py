"""Links whose rate changes while models train: how wide gradients travel, what of it is hidden, ROW and loss, step by step."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from crew import Crew, find_server
from links import Network, why_not
from report import NAMES


def main(words: list[str]) -> int:
    from arguments import among, number, several

    parser = argparse.ArgumentParser(prog="bench changing", description=__doc__)
    parser.add_argument("--links", type=several(number(float, 0, above=True)), default=[1, 0.3, 3], help="rates in Gb/s, one after the other (1,0.3,3)")
    parser.add_argument("--steps", type=number(int, 4), default=12, help="steps on each link (%(default)s)")
    parser.add_argument("--batch", type=number(int, 1), default=192, help="examples per process and step, which decide how long it computes (%(default)s)")
    parser.add_argument("--workers", type=number(int, 2), default=2, help="processes (%(default)s)")
    parser.add_argument("--seed", type=number(int, 0), default=0, help="seed of the model and of its data (%(default)s)")
    parser.add_argument("--methods", type=among(NAMES), default=["thc", "thc-refine"], help="methods, separated by commas (thc,thc-refine)")
    parser.add_argument("--model", choices=("heavy", "light"), default="heavy")
    parser.add_argument("--out", type=Path, default=Path("target/bench-changing"), help="folder for results")
    arguments = parser.parse_args(words)
    program, why = find_server(), why_not()
    if why or program is None:
        print(f"not run: {why or 'thc-ps not found (cargo build --release -p thc-ps, or THC_PS_PROGRAM=PATH)'}")
        return 0
    results: dict[str, Any] = {"load": Path("/proc/loadavg").read_text().split()[0], "methods": {}}
    with Network(arguments.workers) as network:
        network.shape(arguments.links[0])
        with Crew(arguments.workers, program, arguments.out.resolve() / "logs", network) as crew:
            for method in arguments.methods:
                results["methods"][method] = [
                    {"link": link, **_train_on_link(crew, network, link, method, arguments)} for link in arguments.links
                ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"load {results['load']} before the start; {arguments.workers} processes, {arguments.model} model, batch {arguments.batch}\n")
    print(_table(results))
    return 0


def _train_on_link(crew: Crew, network: Network, link: float, method: str, arguments: argparse.Namespace) -> dict[str, Any]:
    network.shape(link)
    started = time.monotonic()
    answers = crew.ask(180, do="follow", model=arguments.model, method=method, batch=arguments.batch, steps=arguments.steps,
                       seed=arguments.seed)
    first = answers[0]
    assert all(each["in_step"] for each in answers), f"{method}: replicas differ"
    return {**first, "took": time.monotonic() - started}


def _table(results: dict[str, Any]) -> str:
    """A row for each method and link; the first two steps on a link are those in which it is found to be another."""
    lines = ["| method | link, Gb/s | step, ms | hidden, ms | waited, ms | widths, first two steps → last | further calls | bandwidth, MB/s | ROW | OSF | loss |",
             "| - | -: | -: | -: | -: | - | - | -: | -: | -: | -: |"]

    def milliseconds(steps: list[dict[str, Any]], key: str) -> str:
        return f"{1e3 * statistics.median(step[key] for step in steps):.0f}"

    for method, links in results["methods"].items():
        for each in links:
            steps = each["steps"]
            later = steps[2:]
            widths = " → ".join(" ".join(step["widths"]) or "as ever" for step in (*steps[:2], steps[-1]))
            rows = [step["row"] for step in later if step["row"] is not None]
            lines.append(
                f"| {method} | {each['link']:g} | {milliseconds(later, 'seconds')} | {milliseconds(later, 'hidden')} | "
                f"{milliseconds(later, 'waited')} | {widths} | "
                f"{' '.join(steps[-1]['refined']) or 'none'} | {steps[-1]['bandwidth'] / 1e6:.0f} | "
                f"{statistics.median(rows) if rows else float('nan'):.2f} | {statistics.median(step['osf'] for step in later):.2f} | "
                f"{each['loss']:.3f} |"
            )
    return "\n".join(lines)
