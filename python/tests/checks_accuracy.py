"""Training as well as exact means: a short form of a GPT-2 with AdamW, whose steps show errors of small coordinates best."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from rig import (
    RANK,
    everywhere,
    same_everywhere,
    wrap_model,
)
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)

WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 128, 3, 4, 64, 6
STEPS, SEEN = 60, 45
"""Steps of a training, and those at its end whose losses count."""


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.attention(self.ln_1(x)).reshape(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // HEADS)
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -1e9)
        x = x + self.projection((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.wide(self.ln_2(x))))


class GPT2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.wte, self.wpe = nn.Embedding(256, WIDTH), nn.Embedding(2 * CONTEXT, WIDTH)
        self.layers, self.ln_f = nn.Sequential(*[Layer() for _ in range(LAYERS)]), nn.LayerNorm(WIDTH)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                narrow = "projection" in name or "narrow" in name
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if narrow else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found = self.layers(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        return self.ln_f(found) @ self.wte.weight.T


def text() -> torch.Tensor:
    """Modules of Python's library, the same on all ranks."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))[:60]
    return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()


def loss_with(data: torch.Tensor, **options: Any) -> float:
    """The mean of all ranks' losses over the last steps."""
    model, _ = wrap_model(GPT2(), ddp_options={"bucket_cap_mb": 25}, server={"seed": 5}, **options)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed((step << 8) + RANK)
        at = torch.randint(0, len(data) - CONTEXT - 1, (BATCH,), generator=generator)
        chosen = data[at[:, None] + torch.arange(CONTEXT + 1)]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(chosen[:, :-1]).flatten(0, 1), chosen[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert same_everywhere(list(model.parameters()))
    every = everywhere(sum(losses[-SEEN:]) / SEEN)  # type: ignore[arg-type]
    return sum(every) / len(every)


def check_adamw_trains_as_well_as_with_exact_means() -> None:
    data = text()
    exact = loss_with(data, warmup=STEPS, feedback=False)
    # As it is by default: 0.023 above exact means. In blocks over the borders of parameters it was 0.031, with error feedback 0.040.
    found = loss_with(data, feedback=None)
    assert found < exact + 0.028, (exact, found)
