"""What the hook costs a host: processor time of a step beside gloo's all-reduce, and Python's own part of a bucket.

testbed/bench-torch/run cost; by hand: python3 testbed/bench-torch cost --help

Two ranks share this host, and run the server themselves. A step makes gradients of a model's shapes, which are there already, and averages them; a model is
one of DistributedDataParallel whose hook is exchanged between steps, so that all ways take turns. What a step costs without averaging is left out.
Python's part is the processor time of its threads in steps in which the library's calls do nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from arguments import among, number
from crew import free_port

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


def main(arguments: list[str]) -> int:
    """The part's command."""
    parser = argparse.ArgumentParser(prog="bench cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("target/bench-cost"), help="folder for results")
    parser.add_argument("--models", type=among(tuple(SHAPES)), default=list(SHAPES), help=f"only these, separated by commas: {', '.join(SHAPES)}")
    parser.add_argument("--rounds", type=number(int, 1), default=7, help="steps of each way, in turns [7]")
    options = parser.parse_args(arguments)
    import cost_rank
    import torch.multiprocessing
    from machine import machine

    about = machine()
    print(f"{about['cores']} cores ({about['cpu']}), torch {about['torch']}, load {about['load_before']:.1f}")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.json"
    models = {name: SHAPES[name] for name in options.models}
    torch.multiprocessing.spawn(cost_rank.main, (free_port(), models, options.rounds, str(path)), cost_rank.RANKS)
    print("| model | parameters | buckets | CPU s a step: gloo | bf16 | THC | THC over gloo | Python's part of a bucket, ms |")
    print("|-|-:|-:|-:|-:|-:|-:|-:|")
    for row in json.loads(path.read_text()):
        cpu = row["cpu"]
        print(
            f"| {row['model']} | {row['parameters'] / 1e6:.1f} M | {row['buckets']} | {cpu['gloo']:.3f} | {cpu['bf16']:.3f} | {cpu['thc']:.3f} "
            f"| {cpu['thc'] / cpu['gloo']:.2f} | {1e3 * row['python']:.2f} |"
        )
    return 0
