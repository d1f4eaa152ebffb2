"""Training with THC against gloo and torch's own hooks, on links of several rates.

Run it by `make bench-torch`; by hand: `python3 testbed/bench-torch --help`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    if sys.argv[1:2] == ["accuracy"]:
        from accuracy.command import main as accuracy

        return accuracy(sys.argv[2:])
    if sys.argv[1:2] == ["cost"]:
        from cost import main as cost

        return cost(sys.argv[2:])
    if sys.argv[1:2] == ["device"]:
        from device.command import main as device

        return device(sys.argv[2:])
    from arguments import among, number, several
    from report import NAMES

    parser = argparse.ArgumentParser(prog="bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 processes, 1 and 10 Gb/s, few steps: 2 to 3 minutes")
    parser.add_argument("--out", type=Path, default=Path("target/bench-torch"), help="folder for results")
    parser.add_argument("--report", type=Path, metavar="JSON", help="only make the table of results measured before")
    parser.add_argument("--limit", type=float, default=40, help="minutes after which to end, with the results so far")
    parser.add_argument("--methods", type=among(NAMES), help=f"only these, separated by commas: {', '.join(NAMES)}")
    parser.add_argument("--workers", type=several(number(int, 1)), help="only these numbers of processes, separated by commas")
    parser.add_argument("--links", type=several(number(float, 0)),
                        help="only these rates in Gb/s, separated by commas; 0 is unshaped loopback")
    parser.add_argument("--only", choices=("pace", "training", "memory"), help="only this part of the plan")
    arguments = parser.parse_args()

    if arguments.report:
        results = json.loads(arguments.report.read_text())
    else:
        measured = measure(arguments)
        if measured is None:
            return 0
        results = measured
    import report

    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    table = report.markdown(results)
    (arguments.out / "results.md").write_text(table)
    print(table)
    print(f"results: {arguments.out}/results.json, results.md")
    return 0


def measure(arguments: argparse.Namespace) -> dict[str, object] | None:
    """Carries the plan out; None with a line that says why, where that is not possible."""
    import dataclasses

    if importlib.util.find_spec("torch") is None:
        print("not run: Python has no torch (pip install torch)")
        return None
    import links
    from machine import machine
    from campaign import Campaign
    from crew import find_server
    from plan import FULL, QUICK, TARGETS

    plan = QUICK if arguments.quick else FULL
    if arguments.methods:
        plan = dataclasses.replace(plan, methods=tuple(arguments.methods))
    if arguments.workers:
        plan = dataclasses.replace(plan, workers=tuple(arguments.workers))
    if arguments.links:
        rates = [rate or None for rate in arguments.links]
        plan = dataclasses.replace(plan, links=tuple(rates))
    if arguments.only:
        plan = dataclasses.replace(
            plan,
            links=() if arguments.only == "memory" else plan.links,
            pace=plan.pace if arguments.only == "pace" else {},
            training=plan.training if arguments.only == "training" else {},
            memory_steps=(plan.memory_steps or 5) if arguments.only == "memory" else 0,
        )
    program, missing = find_server(), []
    if importlib.util.find_spec("thc") is None:
        missing.append("Python has no thc (pip install ./python)")
    if program is None:
        missing.append("thc-ps not found (cargo build --profile dist -p thc-ps, or THC_PS_PROGRAM=PATH)")
    without = [method for method in plan.methods if missing and method.startswith("thc")]
    plan = dataclasses.replace(plan, methods=tuple(m for m in plan.methods if m not in without))

    # So that the context managers below clean up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", flush=True)

    why = links.why_not()
    about = machine()
    say(f"{about['cores']} cores ({about['cpu']}), torch {about['torch']}, load {about['load_before']:.1f}")
    campaign = Campaign(plan, program, arguments.out.resolve() / "logs", arguments.limit * 60, why, say)
    campaign.results |= {"machine": about, "targets": TARGETS, "quick": arguments.quick,
                         "methods": list(plan.methods)}
    for method in without:
        campaign.miss(method, "; ".join(missing))
    try:
        campaign.run()
    except KeyboardInterrupt:
        campaign.miss("the rest", "interrupted")
    campaign.results["minutes"] = (time.monotonic() - started) / 60
    say("done")
    return campaign.results


if __name__ == "__main__":
    sys.exit(main())
