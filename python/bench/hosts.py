"""Hosts of several ranks on shaped links: seconds for a step's gradients, and bytes that leave a host for each coordinate.

Each host is a network namespace with a shaped link (links.py), with so many ranks on the CPU. The gradients of `--size` MiB are averaged, by
DistributedDataParallel or by FSDP2 on a mesh of hosts and ranks (HSDP), and nothing else takes time. With `--computing` each way also
makes steps whose backward pass takes so long, layer by layer, with the processor asleep as a GPU leaves it: what such a step does not take
longer for is hidden. The ways take turns, `--rounds` times `--steps` steps each. Parameter servers are the ranks' own, a share on each host. Means are checked before anything is timed. Means of a run
that shared its machine are of use beside each other, and not beside those of another run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arguments import among
from links import Network, NotPossible, why_not

WAYS: dict[str, dict[str, Any] | None] = {
    "ddp": None,
    "ddp-bf16": None,
    "each": {"rails": False, "one_stream_per_host": False},
    "host": {"one_stream_per_host": True},
    "rails": {"rails": True},
    "hsdp": None,
    "hsdp-bf16": None,
    "replicate": {},
    "replicate-bf16": {},
}
NAMES = {
    "ddp": "DDP, gloo, f32",
    "ddp-bf16": "DDP, gloo, bf16 (torch's hook)",
    "each": "DDP, THC, a stream for each rank",
    "host": "DDP, THC, one stream per host",
    "rails": "DDP, THC, rails",
    "hsdp": "HSDP, gloo, f32",
    "hsdp-bf16": "HSDP, gloo, reduced in bf16",
    "replicate": "HSDP, THC, f32 between the shards",
    "replicate-bf16": "HSDP, THC, bf16 between the shards",
}
PARAMETERS = 16
SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")


def _model(way: str, length: int, arguments: argparse.Namespace, pause: list[float]) -> tuple[Any, Callable[[], None]]:
    """A model whose gradients are what its forward pass gets and whose backward pass takes `pause` seconds, and what ends its groups."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    import thc.torch

    class Computing(torch.autograd.Function):
        """The backward pass of a layer on an accelerator: the processor sleeps until the gradient is there."""

        @staticmethod
        def forward(ctx: Any, product: torch.Tensor) -> torch.Tensor:
            return product.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            time.sleep(pause[0] / PARAMETERS)
            return gradient

    class Part(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(length))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return Computing.apply(self.weight @ inputs)

    class Weights(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(Part() for _ in range(PARAMETERS))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.stack([part(inputs) for part in self.parts]).sum()

    model, options = Weights(), WAYS[way]
    if "hsdp" in way or "replicate" in way:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        both = init_device_mesh("cpu", (arguments.hosts, arguments.ranks), mesh_dim_names=("replicate", "shard"))
        over = both if options is None else both["shard"]
        policy = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)} if "bf16" in way else {}
        for part in model.parts:
            fully_shard(part, mesh=over, **policy)
        fully_shard(model, mesh=over, **policy)
        if options is None:
            return model, lambda: None
        made = thc.torch.replicate(model, both.get_group("replicate"), **options)
        return model, made.group.close
    ddp = DistributedDataParallel(model, bucket_cap_mb=arguments.bucket_mb, gradient_as_bucket_view=True)
    if way == "ddp-bf16":
        ddp.register_comm_hook(None, bf16_compress_hook)
    if options is None:
        return ddp, lambda: None
    thc.torch.wrap(ddp, **options)
    return ddp, thc.torch.hook_of(ddp).group.close


def _rank(arguments: argparse.Namespace) -> None:
    """One of the processes; the first writes what was measured."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    me, ranks = dist.get_rank(), dist.get_world_size()
    length = arguments.size * (1 << 18) // PARAMETERS
    inputs = [torch.randn(length, generator=torch.Generator().manual_seed(each)) for each in range(ranks)]
    exact = torch.stack(inputs).mean(0)
    pause = [0.0]
    models = {way: _model(way, length, arguments, pause) for way in arguments.ways}
    pauses = [0.0, arguments.computing / 1e3] if arguments.computing else [0.0]
    times: dict[str, list[float]] = {way: [] for way in models}
    busy: dict[str, list[float]] = {way: [] for way in models}
    sent: dict[str, list[float]] = {way: [] for way in models}
    for turn in range(arguments.rounds + 2):
        for way, (model, _) in models.items():
            for step in range(arguments.steps * len(pauses)):
                pause[0] = pauses[step // arguments.steps]
                model.zero_grad(set_to_none=False)
                dist.barrier()
                before, began = int(SENT.read_text()), time.perf_counter()
                model(inputs[me]).backward()
                took = time.perf_counter() - began
                dist.barrier()
                if turn > 1:
                    (busy if pause[0] else times)[way].append(took)
                    sent[way].append((int(SENT.read_text()) - before) / (length * PARAMETERS))
            if turn == 0:
                found = next(model.parameters()).grad
                found = found.full_tensor() if hasattr(found, "full_tensor") else found
                error = float((found - exact).square().sum() / exact.square().sum())
                assert error < 0.2, (way, error)
    if me == 0:
        Path(arguments.report).write_text(json.dumps({"seconds": times, "computing": busy, "sent": sent}))
    dist.barrier()
    for _, close in models.values():
        close()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench hosts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2, help="hosts (%(default)s)")
    parser.add_argument("--ranks", type=int, default=4, help="ranks on each host (%(default)s)")
    parser.add_argument("--rate", type=float, default=1, help="rate of a host's link in Gb/s; 0: not shaped (%(default)s)")
    parser.add_argument("--size", type=int, default=32, help="size of the gradients in MiB of f32 (%(default)s)")
    parser.add_argument("--bucket-mb", type=float, default=8, help="DDP's bucket_cap_mb (%(default)s)")
    parser.add_argument("--computing", type=float, default=0, metavar="MS", help="also compute a backward pass of this length, to see how much of a step it hides")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (%(default)s)")
    parser.add_argument("--steps", type=int, default=2, help="steps of each way in a round (%(default)s)")
    parser.add_argument("--ways", type=among(WAYS), default=list(WAYS), help=f"ways, separated by commas ({','.join(WAYS)})")
    parser.add_argument("--out", type=Path, default=Path("target/bench-hosts"), help="folder for results")
    parser.add_argument("--report", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.report:
        _rank(arguments)
        return 0
    if why := why_not():
        print(f"not run: {why}")
        return 0
    from machine import machine

    try:
        with Network(arguments.hosts) as network, tempfile.TemporaryDirectory() as folder:
            network.shape(arguments.rate or None)
            report = f"{folder}/report.json"
            network.run(["hosts", *words, "--report", report], 1200, arguments.ranks)
            found: dict[str, Any] = json.loads(Path(report).read_text())
    except NotPossible as why:
        print(f"not run: {why}")
        return 0
    link = f"links of {arguments.rate:g} Gb/s" if arguments.rate else "links not shaped"
    print(f"{arguments.hosts} hosts of {arguments.ranks} ranks, {link}, {arguments.size} MiB of f32: {machine()['cpu']}, {machine()['cores']} cores for all")
    medians = {way: statistics.median(each) for way, each in found["seconds"].items()}
    for way, median in medians.items():
        native = medians.get("hsdp" if "hsdp" in way or "replicate" in way else "ddp")
        ratio = f"; {native / median:.2f} × native f32" if native else ""
        print(f"  {NAMES[way]:36} {1e3 * median:8.1f} ms (least {1e3 * min(found['seconds'][way]):.1f}), {statistics.median(found['sent'][way]):.2f} bytes a coordinate{ratio}")
        if busy := found["computing"][way]:
            step, computing = statistics.median(busy), arguments.computing / 1e3
            hidden = median + computing - step
            print(f"  {'':36} {1e3 * step:8.1f} ms with {arguments.computing:g} ms of computing: {1e3 * hidden:.0f} ms hidden, {hidden / min(median, computing):.0%} of what can be")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"results-{arguments.rate:g}.json").write_text(json.dumps({"machine": machine(), "medians": medians, **found}, indent=1) + "\n")
    return 0
