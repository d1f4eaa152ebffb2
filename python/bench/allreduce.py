"""One all-reduce of a plain tensor: gloo's against THC's, by the same processes in turn, on shaped links.

Run it by `make bench-allreduce`; by hand: `python/bench/run allreduce --help`. Every repetition restores the tensor,
waits for all processes and takes the time until the last of them has the result; means are checked.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

import links
from arguments import number, pairs, several
from crew import Crew, Failed, find_server
from links import Network
from plan import Link, label

#: What the project wants to reach, as gloo's time over THC's, by processes and link; below the second it is slower.
AIMS = {(4, "10 Gb/s"): (1.5, 1.0), (2, "loopback"): (1.3, 1.0)}


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python/bench/run allreduce", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=several(number(int, 1)), default="2,4", help="numbers of processes, separated by commas (%(default)s)")
    parser.add_argument("--links", type=several(number(float, 0)), default="10,0", help="rates in Gb/s; 0 is unshaped loopback (%(default)s)")
    parser.add_argument("--mib", type=number(float, 1 / 256), default=64, help="the tensor's size in MiB of f32 (%(default)s)")
    parser.add_argument("--repeat", type=number(int, 1), default=15, help="repetitions of each (%(default)s)")
    parser.add_argument("--feedback", action="store_true", help="THC with error feedback")
    parser.add_argument("--threads", type=number(int, 1), help="threads that transform, in each process (the library's default)")
    parser.add_argument("--server", metavar="KEY=VALUE,…", type=pairs, action="append", default=[],
                        help="keys of the server's configuration file, and program=PATH; given several times, all "
                             "these servers are measured in turn")
    parser.add_argument("--limit", type=number(float, 0, above=True), default=10, help="end after so many minutes, with what there is")
    parser.add_argument("--out", type=Path, default=Path("target/bench-torch"), help="folder for logs")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Measures what the command line asks for."""
    arguments = parse(words)
    program = find_server()
    variants = arguments.server or [{}]
    if program is None:
        print("not run: thc-ps not found (cargo build --release -p thc-ps, or THC_PS_PROGRAM=PATH)")
        return 0
    # So that the context managers below clean up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    until = time.monotonic() + 60 * arguments.limit
    rates: list[Link] = [rate or None for rate in arguments.links]
    why = links.why_not()
    if why is None:
        links.remove_stale()
    records: list[dict[str, Any]] = []
    for workers in arguments.workers:
        for rate in rates:
            part = f"{workers} processes, {label(rate)}"
            if rate is not None and why is not None:
                print(f"not run: {part}: {why}")
            elif time.monotonic() >= until:
                print(f"not run: {part}: time is up")
            elif rate is None:
                records += attempt(part, lambda: measure(arguments, program, variants, workers, None, None, until))
            else:
                with Network(workers) as network:
                    records += attempt(part, lambda: measure(arguments, program, variants, workers, rate, network, until))
    folder = arguments.out.parent / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "allreduce.json").write_text(json.dumps(records, indent=1) + "\n")
    print(f"written to {folder}/allreduce.json")
    return 0


def attempt(part: str, measured: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What was measured, or nothing and a line that says why."""
    try:
        return measured()
    except Failed as failure:
        print(f"not run: {part}: {failure}")
        return []


def measure(arguments: argparse.Namespace, program: Path, variants: list[dict[str, str]], workers: int, rate: Link,
            network: Network | None, until: float) -> list[dict[str, Any]]:
    """One number of processes on one link, in the form of benchmarks' results."""
    if network is not None:
        network.shape(rate)
    options = {"threads": arguments.threads} if arguments.threads else {}
    with Crew(workers, program, arguments.out.resolve() / "logs" / f"allreduce-{workers}", network, variants) as crew:
        turns: list[list[dict[str, Any]]] = []
        # The first turn makes connections, joins, and touches all memory.
        for turn in range(arguments.repeat + 1):
            left = until - time.monotonic()
            if left <= 0 and len(turns) > 1:
                break
            turns.append(crew.ask(max(30, left), do="allreduce", coordinates=int(arguments.mib * 2**18), turn=turn,
                                  feedback=arguments.feedback, options=options))
    del turns[0]
    # The slowest process of each repetition.
    seconds = {method: [max(answer[method]["seconds"] for answer in turn) for turn in turns]
               for method in turns[0][0]}
    middle = {method: statistics.median(times) for method, times in seconds.items()}
    records = []
    for method in (method for method in middle if method != "gloo"):
        last = [turn[0][method] for turn in turns]
        spent = {key: 1e3 * statistics.median(answer[key] for answer in last)
                 for key in ("cpu", "server_cpu", "compression", "network", "waiting")}
        again = sum(answer[method]["retransmissions"] for turn in turns for answer in turn)
        aim, floor = AIMS.get((workers, label(rate)), (1.0, 0.5))
        detail = ", ".join(f"{name} {1e3 * middle[name]:.0f} ms ({1e3 * min(times):.0f} to {1e3 * max(times):.0f})"
                           for name, times in seconds.items() if name in ("gloo", method))
        detail += (f"; a worker's CPU time {spent['cpu']:.0f}, compression {spent['compression']:.0f}, sending and receiving "
                   f"{spent['network']:.0f}, waiting {spent['waiting']:.0f} ms, the server's CPU time "
                   f"{spent['server_cpu']:.0f} ms; NMSE {last[-1]['nmse']:.4f}; {again} packets sent again; "
                   f"{len(turns)} repetitions")
        chosen = variants[int(method[3:] or 0)]
        which = ",".join(f"{key}={value}" for key, value in chosen.items())
        name = f"{arguments.mib:g} MiB, {workers} processes, {label(rate)}: thc over gloo{which and f', {which}'}"
        print(f"{middle['gloo'] / middle[method]:6.2f}  {name}\n        {detail}", flush=True)
        records.append({"name": name, "ratio": middle["gloo"] / middle[method], "better": "higher", "aim": aim,
                        "floor": floor, "detail": detail, "seconds": {m: seconds[m] for m in ("gloo", method)}})
    return records
