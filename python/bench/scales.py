"""What scales by tensor are worth: a transformer with LayerNorm, whose norms are large beside its matrices, trained by one worker over a
model server with one scale for all of it, with scales by tensor, and with floats.

    target/python-venv-newest/bin/python python/bench/scales.py        # a minute; --steps, --bits, --seeds, --out FILE

One worker without others: only the numbers differ. The server's optimizer is Adam. The loss is that of the same 200 rows for all.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from arguments import number

SECRET = "a secret for benchmarks"


def read() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=number(int, 1), default=100, help="steps of each run (%(default)s)")
    parser.add_argument("--bits", type=number(int, 2), default=8, help="bits of a coordinate, both ways (%(default)s)")
    parser.add_argument("--rate", type=number(float, 0, above=True), default=3e-3, help="learning rate of Adam (%(default)s)")
    parser.add_argument("--norm", type=number(float, 0, above=True), default=4.0, help="first value of the last norm's weights (%(default)s)")
    parser.add_argument("--seeds", type=number(int, 1), default=3, help="runs of each (%(default)s)")
    parser.add_argument("--out", type=Path, help="file for all runs, as JSON")
    return parser.parse_args()


def run(arguments: argparse.Namespace, way: str, seed: int, server: Any) -> tuple[float, float]:
    """The loss after all steps of the exact model, and bits on the wire for a coordinate and step."""
    import torch
    import thc.torch
    from problems import Text

    problem = Text()
    torch.manual_seed(seed)
    module = problem.module()
    with torch.no_grad():
        # As in large models that have trained for a while: a norm's weights, and outliers in an embedding.
        module.norm.weight.fill_(arguments.norm)
        module.bytes.weight[3] *= 10
    length: Any = thc.torch.tensors(module) if way == "by tensor" else thc.torch.coordinates(module)
    bits = 32 if way == "floats" else arguments.bits
    options = {"secret": SECRET, "model": f"{way.replace(' ', '-')}-{seed}", "workers": 1, "seed": seed}
    with thc.Asynchronous(server.address, length, arguments.rate, adam=(0.9, 0.99), bits=bits, model_bits=bits, **options) as model:
        optimizer = thc.torch.AsynchronousSGD(module.parameters(), model)
        batches = torch.Generator().manual_seed(1000 + seed)
        for _ in range(arguments.steps):
            optimizer.zero_grad()
            problem.loss(module, batches).backward()
            optimizer.step()
        optimizer.settle()
        stats = model.stats()
    sent = (stats["pulled_bits"] + stats["pushed_bits"]) / arguments.steps / thc.torch.coordinates(module)
    with torch.no_grad():
        return problem.held_out_loss(module), sent


def main() -> None:
    """Runs all ways and prints a table."""
    arguments = read()
    import thc
    import torch

    torch.set_num_threads(1)
    found = []
    with thc.ModelServer(SECRET) as server:
        for way in ("one scale", "by tensor", "floats"):
            runs = [run(arguments, way, seed, server) for seed in range(1, arguments.seeds + 1)]
            losses = [loss for loss, _ in runs]
            found.append({"way": way, "losses": losses, "loss": statistics.mean(losses), "bits": runs[0][1]})
            spread = f"{min(losses):.3f} to {max(losses):.3f}"
            print(f"{way:10} loss {statistics.mean(losses):.3f} ({spread}), {runs[0][1]:.1f} bits a coordinate and step, both ways", flush=True)
    if arguments.out:
        from machine import machine

        arguments.out.write_text(json.dumps({"machine": machine(), "steps": arguments.steps, "bits": arguments.bits, "runs": found}, indent=1))


if __name__ == "__main__":
    main()
