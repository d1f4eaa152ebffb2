"""What the hook costs a host: processor time of a step beside gloo's all-reduce, and Python's own part of a bucket.

testbed/bench-torch/run cost; by hand: python3 testbed/bench-torch cost --help

Two ranks share this host, and run the server themselves. A step makes gradients of a model's shapes, which are there already, and averages them; a model is
one of DistributedDataParallel whose hook is exchanged between steps, so that all ways take turns. What a step costs without averaging is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from arguments import among, number
from crew import free_port

RANKS = 2
Shapes = list[tuple[int, ...]]


def resnet50() -> Shapes:
    """The parameters of ResNet-50 for 1,000 classes."""
    found: Shapes = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolutions = [(width, before, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            convolutions += [(4 * width, before, 1, 1)] if block == 0 else []
            for shape in convolutions:
                found += [shape, shape[:1], shape[:1]]
            before = 4 * width
    return [*found, (1000, before), (1000,)]


def transformer(embeddings: Shapes, attention: Shapes, end: Shapes) -> Shapes:
    """Those of twelve layers of a width of 768."""
    norm: Shapes = [(768,), (768,)]
    layer: Shapes = [*attention, *norm, (3072, 768), (3072,), (768, 3072), (768,), *norm]
    return [*embeddings, *(12 * layer), *norm, *end]


SHAPES: dict[str, Shapes] = {
    "1M": 4 * [(512, 512)],
    "10M": 10 * [(1024, 1024)],
    "100M": 24 * [(2048, 2048)],
    "resnet50": resnet50(),
    "bert": transformer([(30522, 768), (512, 768), (2, 768)], 4 * [(768, 768), (768,)], [(768, 768), (768,)]),
    "gpt2": transformer([(50257, 768), (1024, 768)], [(2304, 768), (2304,), (768, 768), (768,)], []),
}
WAYS = ("nothing", "gloo", "bf16", "thc", "python")
"""No averaging; torch's hooks of f32 and bf16; THC; THC whose calls of the library do nothing, which leaves Python's own part."""


def rank_main(rank: int, port: int, names: list[str], rounds: int, out: str) -> None:
    """Measures on one of the ranks; the first writes what was found."""
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    import thc.torch

    os.environ |= {"LOCAL_WORLD_SIZE": str(RANKS), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)

    class Give(torch.autograd.Function):
        """Has the parameters get these gradients."""

        @staticmethod
        def forward(context: Any, given: list[torch.Tensor], *parameters: torch.Tensor) -> torch.Tensor:
            context.given = given
            return parameters[0].new_zeros(())

        @staticmethod
        def backward(context: Any, *_: torch.Tensor) -> Any:
            return None, *context.given

    class Model(torch.nn.Module):
        def __init__(self, shapes: Shapes) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])
            generator = torch.Generator().manual_seed(5)
            # A rank's gradient is (1 + rank) times what all have, so that the mean is known.
            self.given = [torch.randn(shape, generator=generator).mul_(1 + rank) for shape in shapes]

        def forward(self) -> torch.Tensor:
            return Give.apply(self.given, *self.weights)

    def at_once(_: Any, bucket: Any) -> Any:
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def measure(name: str) -> dict[str, Any]:
        model = Model(SHAPES[name])
        ddp = DistributedDataParallel(model)
        state = thc.torch.State(ddp)
        group = state.connect().group
        way, buckets = "nothing", 0
        hooks = {"nothing": (None, at_once), "gloo": (None, default_hooks.allreduce_hook), "bf16": (None, default_hooks.bf16_compress_hook)}

        def hook(_: Any, bucket):  # type: ignore[no-untyped-def] # DDP compares annotations with classes, not text
            nonlocal buckets
            buckets += 1
            its_state, function = hooks.get(way, (state, thc.torch.thc_hook))
            return function(its_state, bucket)

        ddp.register_comm_hook(None, hook)
        real = {call: getattr(group, call) for call in ("allreduce", "allreduce_async")}

        class Over:
            def wait(self) -> None:
                pass

        def skip(array: Any, mode: str = "", **_: Any) -> Over:
            if mode == "raw":
                # The numbers of all ranks at the end of a step: the others' are taken for this one's.
                array[:] = array.sum() / RANKS
            return Over()

        def step() -> None:
            model.zero_grad(set_to_none=True)
            ddp().backward()

        found: dict[str, list[tuple[float, float]]] = {each: [] for each in WAYS}
        for turn in range(-2, rounds):
            for way in WAYS:
                for call in real:
                    setattr(group, call, skip if way == "python" else real[call])
                dist.barrier()
                began, cpu, buckets = time.perf_counter(), time.process_time(), 0
                step()
                took = time.process_time() - cpu, time.perf_counter() - began
                if turn >= 0:
                    found[way].append(took)
                elif turn == -1 and way in ("gloo", "bf16", "thc"):
                    exact = [(1 + RANKS) / 2 / (1 + rank) * each for each in model.given]
                    error = sum(float((p.grad - e).square().sum()) for p, e in zip(model.weights, exact)) / sum(float(e.square().sum()) for e in exact)
                    assert error < 0.05, f"{way}: the squared error of the mean is {error}"
        state.connect().close()
        every: list[Any] = [None] * RANKS
        dist.all_gather_object(every, found)
        # A step's processor time is that of all ranks, the server's included; the least of the turns counts, since what disturbs one adds to it.
        cpu = {each: min(sum(seconds) for seconds in zip(*([c for c, _ in one[each]] for one in every))) for each in WAYS}
        wall = {each: min(w for _, w in found[each]) for each in WAYS}
        return {
            "model": name, "parameters": sum(p.numel() for p in model.parameters()), "tensors": len(model.weights), "buckets": buckets,
            "cpu": {each: cpu[each] - cpu["nothing"] for each in WAYS}, "wall": {each: wall[each] - wall["nothing"] for each in WAYS},
        }  # fmt: skip

    rows = [measure(name) for name in names]
    if rank == 0:
        Path(out).write_text(json.dumps(rows, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def main(arguments: list[str]) -> int:
    """The part's command."""
    parser = argparse.ArgumentParser(prog="bench cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("target/bench-cost"), help="folder for results")
    parser.add_argument("--models", type=among(tuple(SHAPES)), default=list(SHAPES), help=f"only these, separated by commas: {', '.join(SHAPES)}")
    parser.add_argument("--rounds", type=number(int, 1), default=7, help="steps of each way, in turns [7]")
    options = parser.parse_args(arguments)
    import torch.multiprocessing
    from machine import machine

    about = machine()
    print(f"{about['cores']} cores ({about['cpu']}), torch {about['torch']}, load {about['load_before']:.1f}")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.json"
    torch.multiprocessing.spawn(rank_main, (free_port(), list(options.models), options.rounds, str(path)), RANKS)
    print("| model | parameters | buckets | CPU s a step: gloo | bf16 | THC | THC over gloo | Python's part of a bucket: CPU ms | ms |")
    print("|-|-:|-:|-:|-:|-:|-:|-:|-:|")
    for row in json.loads(path.read_text()):
        cpu, wall, buckets = row["cpu"], row["wall"], row["buckets"]
        own = 1e3 * cpu["python"] / RANKS / buckets, 1e3 * wall["python"] / buckets
        print(
            f"| {row['model']} | {row['parameters'] / 1e6:.1f} M | {buckets} | {cpu['gloo']:.3f} | {cpu['bf16']:.3f} | {cpu['thc']:.3f} "
            f"| {cpu['thc'] / cpu['gloo']:.2f} | {own[0]:.2f} | {own[1]:.2f} |"
        )
    return 0
