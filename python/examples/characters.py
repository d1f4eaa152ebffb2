"""A recurrent language model over the characters of a real text, trained on all processes through THC.

    torchrun --nproc_per_node 2 python/examples/characters.py

The text is the language reference of Python itself, which comes with every Python as the module `pydoc_data.topics`
(half a million characters); `--text FILE` takes another one, such as /usr/share/common-licenses/GPL-3.
`--without-thc` trains the same with the process group's own all-reduce.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thc.torch


class NextCharacter(nn.Module):
    """Scores for the character after each of a row of characters."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 64)
        self.memory = nn.GRU(64, width, batch_first=True)
        self.scores = nn.Linear(width, vocabulary)

    def forward(self, rows: Tensor) -> Tensor:
        states, _ = self.memory(self.embedding(rows))
        result: Tensor = self.scores(states)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps (%(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="rows per process and step (%(default)s)")
    parser.add_argument("--length", type=int, default=48, help="characters per row (%(default)s)")
    parser.add_argument("--width", type=int, default=320, help="width of the model (%(default)s)")
    parser.add_argument("--text", type=Path, help="a file to learn from")
    parser.add_argument("--without-thc", action="store_true", help="average by the process group instead")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    topics = pydoc_data.topics.topics
    text = arguments.text.read_text() if arguments.text else "\n".join(topics[name] for name in sorted(topics))
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    data = torch.tensor([numbers[character] for character in text])
    train, test = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]

    def rows(source: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        places = starts[:, None] + torch.arange(arguments.length)
        return source[places], source[places + 1]

    inner = NextCharacter(len(characters), arguments.width)
    model = DistributedDataParallel(inner)
    if not arguments.without_thc:
        model = thc.torch.wrap(model)  # the one line
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    batches = torch.Generator().manual_seed(100 + rank)
    began = time.perf_counter()
    for step in range(1, arguments.steps + 1):
        starts = torch.randint(len(train) - arguments.length - 1, (arguments.batch,), generator=batches)
        inputs, targets = rows(train, starts)
        loss = nn.functional.cross_entropy(model(inputs).transpose(1, 2), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and (step % 50 == 0 or step == arguments.steps):
            print(f"step {step:4}  loss {loss.item():.4f} nats per character", flush=True)
    seconds = time.perf_counter() - began

    with torch.no_grad():
        inputs, targets = rows(test, torch.linspace(0, len(test) - arguments.length - 2, 100).long())
        scores = inner(inputs)
        loss = nn.functional.cross_entropy(scores.transpose(1, 2), targets).item()
        accuracy = (scores.argmax(2) == targets).float().mean().item()
    if rank == 0:
        parameters = sum(p.numel() for p in inner.parameters())
        print(f"on text not trained on: loss {loss:.4f}, accuracy {100 * accuracy:.1f} %; "
              f"{parameters} parameters, {seconds:.1f} s")
        if not arguments.without_thc:
            print(thc.torch.hook_of(model).group.stats().summary(dist.get_world_size()))
    # Left to the interpreter's end, threads of gloo may abort the process (PyTorch 2).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
