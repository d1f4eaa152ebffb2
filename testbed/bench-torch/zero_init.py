"""Trainings in which gradients are zero at first, or for long, or differ in size by orders of magnitude: with exact means and through THC.

    target/python-venv-newest/bin/python testbed/bench-torch/zero_init.py            # all; --tasks lora,dit --seeds 3 --steps 60 --ranks 2

All ranks are in one process, each with the codec of a rank, as in accuracy/ways.py; parameters lie in their buckets one after the other. For each task it
prints how much higher the loss ends than with exact means and the same seed, over the last steps and held out, how far another order of the data moves
the exact training, and the largest NMSE of a parameter above a thousandth of the coordinates in any step in which its exact mean is not zero; and how
much the ranks' gradients agree there, since their errors are in proportion to their own energy.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from accuracy.ways import Thc, exact_mean
from torch import nn
from torch.nn import functional

LAST = 10
"""Steps whose mean loss is the final one."""
HELD_OUT = 1 << 20
"""The step whose examples are held out."""

Examples = tuple[torch.Tensor, ...]


def generator(seed: int, step: int) -> torch.Generator:
    # torch's generator on a CPU takes the low 32 bits of a seed.
    return torch.Generator().manual_seed((seed * 0x9E37_79B1 + step) & 0xFFFF_FFFF)


@dataclass(frozen=True)
class Task:
    """``examples`` of a seed, a step and a rank; ``loss`` of a model, a step, a rank and such examples."""

    build: Callable[[], nn.Module]
    examples: Callable[[int, int, int], Examples]
    loss: Callable[[Any, int, int, Examples], torch.Tensor]
    optimizers: Callable[[nn.Module], list[torch.optim.Optimizer]] = lambda model: [
        torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    ]


# LoRA.


class Adapted(nn.Module):
    """A frozen linear layer, and beside it a product of two matrices, of which the second is zero at first."""

    def __init__(self, frozen: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, frozen.in_features) / frozen.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + (x @ self.a.T) @ self.b.T


def lora(width: int) -> Task:
    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for _ in range(6):
            layers += [Adapted(nn.Linear(width, width, bias=False)), nn.Tanh()]
        return nn.Sequential(*layers)

    def examples(seed: int, step: int, rank: int) -> Examples:
        x, noise = torch.randn(2, 32, width, generator=generator(seed, 100 * step + rank))
        u, v = torch.randn(2, width, generator=torch.Generator().manual_seed(2))
        return x, 0.1 * noise + torch.tanh(0.2 * torch.outer(x @ u / 10, v))

    return Task(build, examples, lambda model, step, rank, found: (model(found[0]) - found[1]).square().mean())


TOKENS, LENGTH = 64, 32


def words(seed: int, step: int, rank: int) -> Examples:
    """Sequences of a random walk over tokens, each of which three may follow."""
    table = torch.randint(0, TOKENS, (TOKENS, 3), generator=torch.Generator().manual_seed(11))
    source = generator(seed, 100 * step + rank)
    found = torch.randint(0, TOKENS, (16, LENGTH + 1), generator=source)
    for at in range(1, LENGTH + 1):
        found[:, at] = table[found[:, at - 1]].gather(1, torch.randint(0, 3, (16, 1), generator=source))[:, 0]
    return (found,)


def next_word(model: Any, step: int, rank: int, found: Examples) -> torch.Tensor:
    return functional.cross_entropy(model(found[0][:, :-1]).flatten(0, 1), found[0][:, 1:].flatten())


# A diffusion transformer with adaLN-zero.


class Dit(nn.Module):
    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.take, self.time = nn.Linear(16, width), nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.attend = nn.ModuleList([nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(layers)])
        self.feed = nn.ModuleList([nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)])
        self.modulate = nn.ModuleList([nn.Linear(width, 6 * width) for _ in range(layers)])
        self.end, self.out = nn.Linear(width, 2 * width), nn.Linear(width, 16)
        for layer in (*self.modulate, self.end, self.out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        def normed(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return functional.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift

        x, c = self.take(x), functional.silu(self.time(t[:, None, None]))
        for attend, feed, modulate in zip(self.attend, self.feed, self.modulate):
            shift, scale, gate, shift_2, scale_2, gate_2 = modulate(c).chunk(6, -1)
            h = normed(x, shift, scale)
            x = x + gate * attend(h, h, h, need_weights=False)[0]
            x = x + gate_2 * feed(normed(x, shift_2, scale_2))
        return self.out(normed(x, *self.end(c).chunk(2, -1)))


def noised(seed: int, step: int, rank: int) -> Examples:
    """Patches of smooth pictures, noise, and times."""
    source = generator(seed, 100 * step + rank)
    at = torch.arange(16.0)
    phase, rate = 6 * torch.rand(2, 16, 12, 1, generator=source)
    return torch.sin(phase + (0.2 + 0.1 * rate) * at), torch.randn(16, 12, 16, generator=source), torch.rand(16, generator=source)


def denoise(model: Any, step: int, rank: int, found: Examples) -> torch.Tensor:
    clean, noise, t = found
    mixed = (1 - t)[:, None, None] * clean + t[:, None, None] * noise
    return (model(mixed, t) - (noise - clean)).square().mean()


# Layers that are used seldom, or by some ranks.


def classifier(width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def points(seed: int, step: int, rank: int, classes: range = range(10)) -> Examples:
    """Ten classes around fixed centres, curved."""
    centres = torch.randn(10, 64, generator=torch.Generator().manual_seed(5))
    source = generator(seed, 100 * step + rank)
    labels = torch.randint(classes.start, classes.stop, (32,), generator=source)
    x = 0.25 * centres[labels] + 0.7 * torch.randn(32, 64, generator=source)
    return x + 0.3 * torch.sin(3 * x), labels


def classes_of_a_rank(seed: int, step: int, rank: int) -> Examples:
    return points(seed, step, rank, range(5 * (rank % 2), 5 * (rank % 2) + 5))


def classify(model: Any, step: int, rank: int, found: Examples) -> torch.Tensor:
    return functional.cross_entropy(model(found[0]), found[1])


class Experts(nn.Module):
    """Of eight experts each rank uses one, another one every three steps; each is idle for long."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64)) for _ in range(8)])
        self.out = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return self.out(x + self.experts[which](x))


def route(model: Any, step: int, rank: int, found: Examples) -> torch.Tensor:
    return functional.cross_entropy(model(found[0], (step // 3 + rank) % 8), found[1])


def bags(seed: int, step: int, rank: int) -> Examples:
    """Counts of 2,000 words, few of them in a text, by Zipf's law, and the sign of the text's fixed weights."""
    source = generator(seed, 100 * step + rank)
    frequency = 1 / torch.arange(1, 2001, dtype=torch.float32)
    x = torch.zeros(32, 2000)
    x.scatter_add_(1, torch.multinomial(frequency.expand(32, -1), 40, replacement=True, generator=source), torch.ones(32, 40))
    weights = torch.randn(2000, generator=torch.Generator().manual_seed(3))
    return x, (x @ weights > 0).long()


class Gpt(nn.Module):
    """A small transformer over tokens, norms first, whose output layer is its embedding."""

    def __init__(self, width: int = 96, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, width), nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(layers)]
        )
        self.norm = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, found: torch.Tensor) -> torch.Tensor:
        length = found.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.tokens(found) + self.places(torch.arange(length))
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.norm(x) @ self.tokens.weight.T


def muon(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the rest."""
    matrices = {id(p): p for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("layers")}
    rest = [p for p in model.parameters() if id(p) not in matrices]
    return [torch.optim.Muon(list(matrices.values()), 5e-3), torch.optim.AdamW(rest, 1e-3)]


TASKS: dict[str, Task] = {
    "lora-320": lora(320),
    "lora-256": lora(256),
    "dit": Task(Dit, noised, denoise),
    "idle-experts": Task(Experts, points, route),
    "bag-of-words": Task(lambda: nn.Sequential(nn.Linear(2000, 64), nn.ReLU(), nn.Linear(64, 2)), bags, classify),
    "own-classes": Task(classifier, classes_of_a_rank, classify),
    "muon": Task(Gpt, words, next_word, muon),
    "gpt": Task(Gpt, words, next_word),
}


@dataclass
class Run:
    final: float
    held_out: float
    worst: float = 0.0
    """The largest NMSE of a parameter in any step, and of which."""
    where: str = ""
    agreement: float = 1.0
    """There, the energy of the mean over the mean energy of the ranks' gradients: 1 if they are equal, 1 / ranks if they have nothing in common, less if
    they cancel."""


def train(task: Task, seed: int, steps: int, ranks: int, compressed: bool, data: int) -> Run:
    torch.manual_seed(seed)
    model: Any = task.build()
    trained = nn.ParameterDict()
    names = {}
    for number, (name, parameter) in enumerate((name, p) for name, p in model.named_parameters() if p.requires_grad):
        names[f"p{number}"] = name
        trained[f"p{number}"] = parameter
    parameters = list(trained.values())
    coordinates = sum(p.numel() for p in parameters)
    way = Thc(trained, ranks, seed=seed) if compressed else None
    optimizers = task.optimizers(model)
    run, losses = Run(0.0, 0.0), []
    for step in range(steps):
        gradients, loss = [], 0.0
        for rank in range(ranks):
            model.zero_grad(set_to_none=True)
            own = task.loss(model, step, rank, task.examples(data, step, rank))
            own.backward()
            loss += float(own.detach()) / ranks
            gradients.append(torch.cat([torch.zeros_like(p).reshape(-1) if p.grad is None else p.grad.reshape(-1) for p in parameters]))
        losses.append(loss)
        exact = exact_mean(gradients)
        mean = exact if way is None else way.mean([gradient.clone() for gradient in gradients])
        at = 0
        for name, parameter in zip(names.values(), parameters):
            place = slice(at, at + parameter.numel())
            at = place.stop
            parameter.grad = mean[place].view_as(parameter).clone()
            energy, lost = float(exact[place].double().square().sum()), float((mean[place] - exact[place]).double().square().sum())
            if energy > 0 and 1000 * parameter.numel() > coordinates and lost / energy > run.worst:
                run.worst, run.where = lost / energy, f"{name}, step {step}"
                run.agreement = energy / statistics.mean(float(gradient[place].double().square().sum()) for gradient in gradients)
        for optimizer in optimizers:
            optimizer.step()
    run.final = statistics.mean(losses[-LAST:])
    model.eval()
    with torch.no_grad():
        run.held_out = statistics.mean(
            float(task.loss(model, steps, rank, task.examples(HELD_OUT, HELD_OUT + 100 * number, rank))) for number in range(4) for rank in range(ranks)
        )
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(TASKS), help="some of %(default)s")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| task | exact loss | THC over it, by seed | held out over it | another order, by seed | its held out | largest NMSE | agreement there |", flush=True)
    print("|-|-:|-|-|-|-|-|-:|", flush=True)
    for name in options.tasks.split(","):
        task = TASKS[name]
        runs = [
            [train(task, seed, options.steps, options.ranks, compressed, data) for compressed, data in ((False, seed), (True, seed), (False, seed + 500))]
            for seed in range(options.seeds)
        ]

        def over(which: int, what: str) -> str:
            return " ".join(f"{getattr(run[which], what) - getattr(run[0], what):+.4f}" for run in runs)

        worst = max((run[1] for run in runs), key=lambda run: run.worst)
        print(
            f"| {name} | {statistics.mean(run[0].final for run in runs):.4f} | {over(1, 'final')} | {over(1, 'held_out')} | {over(2, 'final')} | {over(2, 'held_out')} | "
            f"{worst.worst:.2g} ({worst.where}) | {worst.agreement:.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
