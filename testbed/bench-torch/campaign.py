"""Carries out a plan, part by part, and collects what was measured."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any, Callable

from crew import Crew, Failed
from links import Network
from plan import Link, Pace, Plan, TARGETS, Training, label


def time_to_loss(points: list[list[float]], target: float) -> dict[str, float] | None:
    """Step and time at which the held-out loss first comes down to `target`, linear between measurements."""
    for (step0, time0, loss0), (step1, time1, loss1) in zip(points, points[1:]):
        if loss1 <= target:
            part = (loss0 - target) / (loss0 - loss1) if loss0 > target else 0.0
            return {"step": step0 + part * (step1 - step0), "seconds": time0 + part * (time1 - time0)}
    return None


class Campaign:
    """A plan under way. Parts that fail are listed in `results["not_run"]` and the rest goes on."""

    def __init__(self, plan: Plan, program: Path | None, folder: Path, limit: float, why_no_network: str | None,
                 say: Callable[[str], None]) -> None:
        self.plan, self.program, self.folder, self.say = plan, program, folder, say
        self.why_no_network = why_no_network
        self.until = time.monotonic() + limit
        self.retry: list[Callable[[Crew], None]] = []
        self.results: dict[str, Any] = {"pace": [], "training": [], "memory": [], "not_run": []}

    def time_left(self) -> float:
        """Seconds left of the limit."""
        return self.until - time.monotonic()

    def miss(self, part: str, why: str) -> None:
        """Notes a part that was not run."""
        self.results["not_run"].append({"part": part, "why": why})
        self.say(f"not run: {part}: {why}")

    def run(self) -> None:
        """Everything."""
        shaped = [link for link in self.plan.links if link is not None]
        for workers in self.plan.workers:
            if not shaped and not self.plan.training:
                pass
            elif self.why_no_network:
                self.miss(f"{workers} processes on shaped links", self.why_no_network)
            else:
                with Network(workers) as network:
                    self.part(workers, network, shaped)
            if None in self.plan.links or (self.why_no_network and shaped):
                self.part(workers, None, [None])
        if self.plan.memory_steps:
            for method in self.plan.methods:
                self.memory(method)

    def part(self, workers: int, network: Network | None, links: list[Link]) -> None:
        """All that one crew does: paces on all links, then training runs. A crew that fails is replaced."""
        jobs: list[Callable[[Crew], None]] = []
        for link in links:
            for model, pace in self.plan.pace.items():
                jobs.append(lambda crew, link=link, model=model, pace=pace:
                            self.pace(crew, network, link, model, pace, list(self.plan.methods)))
        if network is not None or self.why_no_network:
            for (model, n), training in self.plan.training.items():
                if n == workers:
                    jobs += [lambda crew, seed=seed, method=method, model=model, training=training:
                             self.train(crew, network, model, method, seed, training)
                             for seed in range(training.seeds) for method in self.plan.methods]
        while jobs or self.retry:
            try:
                jobs[:0], self.retry = self.retry, []
                with Crew(workers, self.program, self.folder / f"crew-{workers}", network) as crew:
                    self.results["parameters"] = crew.parameters
                    while jobs:
                        if self.time_left() <= 0:
                            self.miss(f"{len(jobs)} parts with {workers} processes", "time is up")
                            return
                        # A job that fails has noted so and is not tried again.
                        jobs.pop(0)(crew)
            except Failed as failure:
                if jobs or self.retry:
                    self.say(f"starting new processes: {failure}")
                if self.time_left() <= 0:
                    self.miss(f"{len(jobs)} parts with {workers} processes", "time is up")
                    return

    def pace(self, crew: Crew, network: Network | None, link: Link, model: str, pace: Pace, methods: list[str]) -> None:
        """Times steps of all methods in turn; one by one if that fails."""
        part = f"pace of {'/'.join(methods)}, {model}, {crew.workers} processes, {label(link)}"
        if network is not None:
            network.shape(link)
        try:
            answers = crew.ask(min(240, max(1, self.time_left())), do="pace", model=model, methods=methods,
                               rounds=pace.rounds, warmup=pace.warmup, steps=pace.steps)
        except Failed as failure:
            if len(methods) == 1:
                self.miss(part, str(failure))
            else:
                self.retry = [lambda crew, method=method: self.pace(crew, network, link, model, pace, [method])
                              for method in methods]
                self.say(f"{part}: {failure}; once more, method by method")
            raise
        for method in methods:
            each = [answer[method] for answer in answers]
            seconds = sorted(each[0]["seconds"])
            steps = len(seconds)
            record = {
                "model": model, "workers": crew.workers, "link": label(link), "method": method,
                "median_ms": 1e3 * statistics.median(seconds), "fastest_ms": 1e3 * seconds[0],
                "slowest_ms": 1e3 * seconds[-1], "steps": steps,
            }
            self.results["pace"].append(record)
        line = ", ".join(f"{r['method']} {r['median_ms']:.0f}" for r in self.results["pace"][-len(methods):])
        self.say(f"{model}, {crew.workers} processes, {label(link)}: ms a step: {line}")

    def train(self, crew: Crew, network: Network | None, model: str, method: str, seed: int, training: Training) -> None:
        """One training run."""
        link = training.links[seed] if seed < len(training.links) else None
        name = label(link) if link is not None and network is not None else "unshaped" if network else "loopback"
        part = f"training of {model} by {method}, {crew.workers} processes, {name}, seed {seed}"
        if network is not None:
            network.shape(link)
        try:
            answers = crew.ask(min(300, max(1, self.time_left())), do="train", model=model, method=method, seed=seed,
                               steps=training.steps, every=training.every)
        except Failed as failure:
            self.miss(part, str(failure))
            raise
        first = answers[0]
        record = {"model": model, "workers": crew.workers, "link": name, "method": method, "seed": seed,
                  "points": first["points"], "final": first["points"][-1][2], "in_step": first["in_step"],
                  "reached": time_to_loss(first["points"], TARGETS[model])}
        self.results["training"].append(record)
        when = record["reached"]
        target = f"{TARGETS[model]} after {when['step']:.0f} steps, {when['seconds']:.1f} s" if when else "target not reached"
        self.say(f"{part}: loss {record['final']:.3f}, {target}")

    def memory(self, method: str) -> None:
        """Peak memory of training processes, new ones for each method."""
        try:
            with Crew(2, self.program, self.folder / "crew-memory") as crew:
                answers = crew.ask(60, do="memory", model="heavy", method=method, steps=self.plan.memory_steps)
        except Failed as failure:
            self.miss(f"memory of {method}", str(failure))
            return
        self.results["memory"].append({"method": method} | {
            key: max(answer[key] for answer in answers) for key in ("before", "peak", "steady", "gradient")})
        record = self.results["memory"][-1]
        self.say(f"memory of {method}: peak {record['peak']:.0f} MiB, {record['steady']:.0f} between steps, "
                 f"{record['before']:.0f} before the model")


