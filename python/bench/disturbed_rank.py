"""One process of `disturbed.py`: it joins, catches up, and trains until it is told to end. Each line that it prints is a JSON object."""

from __future__ import annotations

import json
import os
import select
import sys
import time
import zlib
from typing import Any

import numpy as np
import thc
import thc.torch
import torch
from model import Shape, Text, build
from torch.nn import functional

SHAPE = Shape(embedding=32, width=256, layers=2, batch=16, rate=0.08)
HELD_OUT = 4096
MEASURE = 20
"""Steps between two looks at the held-out part."""


def say(**what: object) -> None:
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


class Rank:
    """A replica and its place in the job."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.text = settings, Text()
        self.model = build(SHAPE, self.text, settings["seed"])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=SHAPE.rate, momentum=0.5)
        self.held_out = self.text.held_out(HELD_OUT)
        self.steps, self.last = 0, settings["steps"]
        self.group = thc.Group(settings["ps"], 1, settings["seat"], settings["cookie"], timeout=60, join_timeout=60, threads=1)

    def _listen(self) -> None:
        """The last step may be told later."""
        if select.select([0], [], [], 0)[0] and (line := os.read(0, 100)):
            self.last = int(line)

    def catch_up(self) -> None:
        self.steps = thc.torch.catch_up(self.group, self.model, self.optimizer, steps=self.steps)
        thc.torch.check_replicas(self.model, group=self.group, when=f" after step {self.steps}")
        say(caught_up=self.steps, members=self.group.membership.workers)

    def step(self) -> None:
        """One step with whoever takes part. What it ends with is told so that ranks can be compared."""
        change = self.group.boundary()
        if change is not None:
            say(epoch=change.epoch, members=change.workers, newcomers=change.newcomers)
            if change.newcomers:
                self.catch_up()
        contexts, targets = self.text.batch(self.settings["seed"], self.steps, self.settings["seat"], SHAPE.batch)
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(contexts), targets)
        loss.backward()
        mean = torch.cat([parameter.grad.reshape(-1) for parameter in self.model.parameters()])
        self.group.allreduce(mean.numpy(), feedback="gradients")
        at = 0
        for parameter in self.model.parameters():
            parameter.grad.copy_(mean[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()
        self.optimizer.step()
        self.steps += 1
        parameters = b"".join(np.ascontiguousarray(p.detach().numpy()).tobytes() for p in self.model.parameters())
        told: dict[str, object] = {"step": self.steps, "mean": zlib.crc32(mean.numpy().tobytes()), "replica": zlib.crc32(parameters)}
        membership = self.group.membership
        if membership.worker == 0 and self.steps % MEASURE == 0:
            with torch.no_grad():
                told["loss"] = functional.cross_entropy(self.model(self.held_out[0]), self.held_out[1]).item()
        say(**told, members=membership.workers)
        if self.steps % self.settings["check"] == 0:
            thc.torch.check_replicas(self.model, group=self.group, when=f" after step {self.steps}")
            say(compared=self.steps)

    def run(self) -> None:
        """Until the last step, which is the same on all ranks."""
        self.catch_up()
        while self.steps < self.last:
            began = time.monotonic()
            self._listen()
            try:
                self.step()
            except (thc.SessionError, thc.JoinError) as error:
                say(ended=f"{type(error).__name__}: {error}")
                self.group.rejoin()
                self.catch_up()
            time.sleep(max(0.0, self.settings["pace"] - (time.monotonic() - began)))
        stats = self.group.stats()
        say(finished=self.steps, retransmissions=stats.retransmissions, packets=stats.packets_up)
        self.group.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    Rank(json.loads(sys.argv[1])).run()
