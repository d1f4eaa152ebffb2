"""A stand-in for an accelerator: gradients of a well-known model become ready layer by layer when an accelerator would have them, while
the CPU sleeps; then DistributedDataParallel and its hooks average them for real, on shaped links.

No accelerator is measured. A layer takes as long as its operations at the rate of an accelerator that is stood in for (shapes.py), and
neither copies between an accelerator and the host nor the optimizer take any time. Each way takes turns with DDP without a hook, step by
step, and figures are ratios within those turns. Models are as many times smaller as --part says, in layers, vocabulary and computing alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from arguments import among, number, several
from links import Failed, Network, NotPossible, why_not

WAYS = {
    "bf16": "bf16 hook",
    "powersgd4": "PowerSGD, rank 4",
    "thc": "**THC**, shares of a server",
    "thc-lanes": '**THC**, `over="process-group"`',
    "thc-faster": "**THC**, `only_if_faster`",
}
NAMES = ("resnet50", "bert", "gpt2")
"""Of shapes.py."""
PARTS = {"resnet50": 1, "bert": 8, "gpt2": 4}
LIMIT = 560.0
"""Seconds of one table."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench accelerator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=among(NAMES), default=list(NAMES), help=f"models, separated by commas ({','.join(NAMES)})")
    parser.add_argument("--ranks", type=several(number(int, 2)), default=[2, 4], help="numbers of ranks, separated by commas (2,4)")
    parser.add_argument("--rates", type=several(number(float, 0)), default=[1.0, 10.0, 25.0], help="rates of links in Gb/s, separated by commas; 0: not shaped (1,10,25)")
    parser.add_argument("--ways", type=among(WAYS), default=list(WAYS), help=f"ways, separated by commas, beside no hook ({','.join(WAYS)})")
    parser.add_argument("--rounds", type=number(int, 1), default=5, help="timed steps of each way (%(default)s)")
    parser.add_argument("--part", type=number(int, 1), help="train one of this many parts of BERT and GPT-2 (8 and 4)")
    parser.add_argument("--quick", action="store_true", help="ResNet-50 by 2 ranks at 10 Gb/s, 2 rounds")
    parser.add_argument("--out", type=Path, default=Path("target/bench-accelerator"), help="folder for results")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.rank:
        from accelerator.rank import work

        work(json.loads(arguments.rank))
        return 0
    if arguments.quick:
        arguments.models, arguments.ranks, arguments.rates, arguments.rounds = ["resnet50"], [2], [10.0], 2
    if why := why_not():
        print(f"not run: {why}")
        return 0
    from machine import machine

    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": machine(), "parts": []}
    about = found["machine"]
    print(f"stand-in for an accelerator; {about['cpu']}, {about['cores']} cores for all ranks, torch {about['torch']}, load {about['load_before']:.1f}")
    for model in arguments.models:
        for ranks in arguments.ranks:
            for rate in arguments.rates:
                try:
                    part = _measure(model, ranks, rate, arguments)
                except (Failed, NotPossible) as error:
                    print(f"not run: {model}, {ranks} ranks at {rate:g} Gb/s: {error}")
                    continue
                found["parts"].append(part)
                (arguments.out / "results.json").write_text(json.dumps(found, indent=1) + "\n")
                print(_table(part), flush=True)
    print(f"results: {arguments.out}/results.json")
    return 0


def _measure(model: str, ranks: int, rate: float, arguments: argparse.Namespace) -> dict[str, Any]:
    divided = (arguments.part or PARTS[model]) if model != "resnet50" else 1
    with Network(ranks) as network, tempfile.TemporaryDirectory() as folder:
        network.shape(rate or None)
        report = f"{folder}/report.json"
        part = {"model": model, "part": divided, "ways": arguments.ways, "rounds": arguments.rounds, "report": report}
        network.run(["accelerator", "--rank", json.dumps(part)], LIMIT)
        return {"model": model, "part": divided, "ranks": ranks, "gbit": rate, **json.loads(Path(report).read_text())}


def _row(name: str, own: dict[str, Any], base: dict[str, Any], computing: float) -> str:
    """Hidden is what of communication by itself a step does not take longer for than computing."""
    step, alone = statistics.median(own["seconds"]), statistics.median(own["alone"])
    ratio, hidden = statistics.median(base["seconds"]) / step, max(0.0, alone - max(0.0, step - computing))
    cells = [f"{1e3 * step:.0f}", f"{ratio:.2f} ×", f"{1e3 * alone:.0f}", f"{1e3 * hidden:.0f}", f"{100 * computing / step:.0f} %", f"{1e3 * own['cpu']:.0f}"]
    return f"| {name} | " + " | ".join(cells) + " |"


def _table(part: dict[str, Any]) -> str:
    divided = f", one part of {part['part']}" if part["part"] > 1 else ""
    link = f"{part['gbit']:g} Gb/s" if part["gbit"] else "links not shaped"
    lines = [
        f"\n{part['model']}{divided} ({part['parameters'] / 1e6:.1f} M parameters), {part['ranks']} ranks, {link}: {1e3 * part['computing']:.0f} ms of computing a step\n",
        "| | step, ms | × no hook | communication alone, ms | hidden, ms | of the accelerator's pace | CPU of a rank, ms |",
        "|-|-:|-:|-:|-:|-:|-:|",
    ]  # fmt: skip
    computing, ways = part["computing"], part["ways"]
    base = {key: [number for way in ways.values() for number in way["base"][key]] for key in ("seconds", "alone")}
    base["cpu"] = statistics.mean(way["base"]["cpu"] for way in ways.values())
    lines.append(_row("no hook (gloo)", base, base, computing))
    for name, way in ways.items():
        said = {True: " (goes on)", False: " (left it at no hook)", None: ""}[way["compresses"]]
        lines.append(_row(WAYS[name] + said, way["own"], way["base"], computing))
    return "\n".join(lines)
