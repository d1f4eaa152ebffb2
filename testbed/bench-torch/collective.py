"""One all-reduce by hosts on shaped links, without a server and with one: gloo's f32 and bf16, THC's sums through gloo, a ring that compresses again at
each hop, and THC's shares.

Each host is a network namespace with one rank. All ways average the same arrays, in turns; each mean is compared with the exact one first.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arguments import among, number, several
from links import Network, NotPossible, why_not

WAYS = {
    "f32": "gloo, f32",
    "bf16": "gloo, bf16",
    "lanes8": "THC through gloo, lanes of 8 bits",
    "lanes6": "THC through gloo, lanes of 6 bits",
    "int8": "ring of 8-bit integers, compressed again at each hop",
    "shares": "THC, a share of the server on each host",
}
BITS = {"f32": 32, "bf16": 16, "lanes8": 8, "lanes6": 6.4, "int8": 8}
"""Of a coordinate in a ring."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench collective", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=several(number(int, 2)), default=[4], help="numbers of hosts, separated by commas (4)")
    parser.add_argument("--rates", type=several(number(float, 0)), default=[1.0], help="rates of links in Gb/s, separated by commas; 0: not shaped (1)")
    parser.add_argument("--size", type=number(float, 0, above=True), default=64, help="size of the array in MiB of f32 (%(default)s)")
    parser.add_argument("--ways", type=among(WAYS), default=list(WAYS), help=f"ways, separated by commas ({','.join(WAYS)})")
    parser.add_argument("--rounds", type=number(int, 1), default=7, help="timed calls of each way (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("target/bench-collective"), help="folder for results")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.rank:
        _rank(json.loads(arguments.rank))
        return 0
    if why := why_not():
        print(f"not run: {why}")
        return 0
    from machine import machine

    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": machine(), "size_mib": arguments.size, "parts": []}
    print(f"{arguments.size:g} MiB of f32; {found['machine']['cpu']}, {found['machine']['cores']} cores for all hosts, torch {found['machine']['torch']}")
    for hosts in arguments.hosts:
        for rate in arguments.rates:
            try:
                part = _measure(hosts, rate, arguments)
            except NotPossible as error:
                print(f"not run: {hosts} hosts at {rate:g} Gb/s: {error}")
                continue
            found["parts"].append(part)
            (arguments.out / "results.json").write_text(json.dumps(found, indent=1) + "\n")
            print(_table(part, arguments.size), flush=True)
    print(f"results: {arguments.out}/results.json")
    return 0


def _measure(hosts: int, rate: float, arguments: argparse.Namespace) -> dict[str, Any]:
    with Network(hosts) as network, tempfile.TemporaryDirectory() as folder:
        network.shape(rate or None)
        report = f"{folder}/report.json"
        part = {"ways": arguments.ways, "rounds": arguments.rounds, "coordinates": round(arguments.size * (1 << 18)), "report": report}
        network.run(["collective", "--rank", json.dumps(part)], 500)
        return {"hosts": hosts, "gbit": rate, **json.loads(Path(report).read_text())}


def _link_time(way: str, hosts: int, gbit: float, mib: float) -> float | None:
    """Seconds that the links take for a ring's bytes, without headers."""
    if way not in BITS or not gbit:
        return None
    return 2 * (hosts - 1) / hosts * mib * (1 << 18) * BITS[way] / (gbit * 1e9)


def _table(part: dict[str, Any], mib: float) -> str:
    lines = [f"\n{part['hosts']} hosts, " + (f"{part['gbit']:g} Gb/s" if part["gbit"] else "links not shaped")]
    base = statistics.median(part["seconds"]["f32"]) if "f32" in part["seconds"] else None
    for way, times in part["seconds"].items():
        median = statistics.median(times)
        ratio = f", {base / median:.2f} × gloo's f32" if base else ""
        allowed = _link_time(way, part["hosts"], part["gbit"], mib)
        links = f"; links allow {1e3 * allowed:.0f} ms" if allowed else ""
        lines.append(f"  {WAYS[way]:55} {1e3 * median:7.1f} ms (least {1e3 * min(times):.1f}){ratio}; NMSE {part['nmse'][way]:.2g}{links}")
    return "\n".join(lines)


def _rank(part: dict[str, Any]) -> None:
    """One of the hosts; the first writes what was measured."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    me, ranks = dist.get_rank(), dist.get_world_size()
    inputs = [torch.randn(part["coordinates"], generator=torch.Generator().manual_seed(each)) for each in range(ranks)]
    original, exact = inputs[me], torch.stack(inputs).mean(0)
    del inputs
    data = original.clone()
    groups: list[Any] = []
    calls = {way: _call(way, groups) for way in part["ways"]}
    seconds: dict[str, list[float]] = {way: [] for way in calls}
    nmse: dict[str, float] = {}
    for turn in range(part["rounds"] + 1):
        for way, call in calls.items():
            data.copy_(original)
            dist.barrier()
            began = time.perf_counter()
            call(data)
            took = time.perf_counter() - began
            if turn:
                seconds[way].append(took)
                continue
            nmse[way] = float((data - exact).double().square().sum() / exact.double().square().sum())
            if not nmse[way] < 0.1:
                raise SystemExit(f"{way}: the mean is wrong, NMSE {nmse[way]}")
    if me == 0:
        Path(part["report"]).write_text(json.dumps({"seconds": seconds, "nmse": nmse}))
    dist.barrier()
    for group in groups:
        group.close()


def _call(way: str, groups: list[Any]) -> Callable[[Any], None]:
    """Puts the mean into an array."""
    import torch
    import torch.distributed as dist

    ranks = dist.get_world_size()
    if way == "f32":

        def f32(data: Any) -> None:
            dist.all_reduce(data)
            data.div_(ranks)

        return f32
    if way == "bf16":

        def bf16(data: Any) -> None:
            short = data.to(torch.bfloat16).div_(ranks)
            dist.all_reduce(short)
            data.copy_(short)

        return bf16
    if way == "int8":
        return _recompressing_ring
    if way == "shares":
        import thc
        from thc.torch.ranks.gathering import Gather

        group = thc.Group.local(dist.get_rank(), ranks, store=Gather(None), threads=1)
    else:
        from thc.torch import CollectiveGroup

        group = CollectiveGroup(lane=int(way.removeprefix("lanes")), threads=1)
    groups.append(group)

    def reduce_array(data: Any) -> None:
        group.allreduce(data.numpy())

    return reduce_array


BLOCK = 1 << 13
"""Coordinates that share a scale."""


def _recompressing_ring(data: Any) -> None:
    """A ring all-reduce whose partial sums travel as 8-bit integers with a scale a block: each hop decompresses, adds and compresses."""
    import torch
    import torch.distributed as dist

    me, ranks = dist.get_rank(), dist.get_world_size()
    chunks = list(data.chunk(ranks))

    def pack(x: Any) -> Any:
        padded = torch.nn.functional.pad(x, (0, -len(x) % BLOCK)).view(-1, BLOCK)
        scale = padded.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
        codes = (padded / scale).round_().to(torch.int8)
        return torch.cat([codes.view(-1), scale.view(-1).contiguous().view(torch.int8)])

    def unpack(packed: Any, length: int) -> Any:
        blocks = -(-length // BLOCK)
        codes = packed[: blocks * BLOCK].view(blocks, BLOCK)
        return (codes * packed[blocks * BLOCK :].view(torch.float32).view(-1, 1)).view(-1)[:length]

    def hop(mine: Any, length: int) -> Any:
        blocks = -(-length // BLOCK)
        theirs = torch.empty(blocks * (BLOCK + 4), dtype=torch.int8)
        sending = dist.isend(mine, (me + 1) % ranks)
        dist.recv(theirs, (me - 1) % ranks)
        sending.wait()
        return theirs

    for turn in range(ranks - 1):
        out, into = chunks[(me - turn) % ranks], chunks[(me - turn - 1) % ranks]
        into.add_(unpack(hop(pack(out), len(into)), len(into)))
    own = (me + 1) % ranks
    packed = pack(chunks[own].div_(ranks))
    chunks[own].copy_(unpack(packed, len(chunks[own])))
    for turn in range(ranks - 1):
        into = chunks[(own - turn - 1) % ranks]
        packed = hop(packed, len(into))
        into.copy_(unpack(packed, len(into)))
