"""Results as Markdown."""

from __future__ import annotations

import statistics
from typing import Any

NAMES = {
    "gloo": "no hook (gloo)",
    "fp16": "fp16 hook",
    "bf16": "bf16 hook",
    "powersgd1": "PowerSGD, rank 1",
    "powersgd4": "PowerSGD, rank 4",
    "thc": "**THC**",
    "thc-adapt": "**THC**, `adapt`",
    "thc-lanes": "**THC**, lanes of 8 bits through gloo",
    "thc-raw": "THC's server, nothing compressed",
}


class Results:
    """What was measured, with the questions that the tables ask."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.all = results
        self.methods: list[str] = results["methods"]

    def workers(self) -> list[int]:
        """Numbers of processes, in order."""
        return sorted({record["workers"] for record in [*self.all["pace"], *self.all["training"]]})

    def links(self, model: str, workers: int) -> list[str]:
        """Links on which steps were timed, slowest first and loopback last."""
        found = {r["link"] for r in self.all["pace"] if (r["model"], r["workers"]) == (model, workers)}
        return sorted(found, key=lambda link: (link == "loopback", float(link.split()[0]) if link != "loopback" else 0))

    def models(self) -> list[str]:
        """Models, in order."""
        return sorted({record["model"] for record in self.all["pace"]})

    def pace(self, model: str, workers: int, link: str, method: str) -> dict[str, Any] | None:
        """How steps were timed."""
        wanted = (model, workers, link, method)
        return next((r for r in self.all["pace"]
                     if (r["model"], r["workers"], r["link"], r["method"]) == wanted), None)

    def trainings(self, model: str, workers: int, method: str) -> list[dict[str, Any]]:
        """Training runs, one for each seed."""
        wanted = (model, workers, method)
        return [r for r in self.all["training"] if (r["model"], r["workers"], r["method"]) == wanted]

    def steps_to_target(self, model: str, workers: int, method: str) -> float | None:
        """The median over the seeds; None if one did not get there."""
        steps = [r["reached"]["step"] if r["reached"] else None for r in self.trainings(model, workers, method)]
        if not steps or None in steps:
            return None
        return statistics.median(steps)

    def direct(self, model: str, workers: int, link: str, method: str) -> float | None:
        """Seconds to the target in a run on that very link."""
        times = [r["reached"]["seconds"] for r in self.trainings(model, workers, method)
                 if r["link"] == link and r["reached"]]
        return statistics.median(times) if times else None

    def seconds_to_target(self, model: str, workers: int, link: str, method: str) -> float | None:
        """Steps to the target times the median step."""
        steps, pace = self.steps_to_target(model, workers, method), self.pace(model, workers, link, method)
        return steps * pace["median_ms"] / 1e3 if steps is not None and pace else None


def row(cells: list[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table with a left column of names."""
    return [row(head), row(["-"] + ["-:"] * (len(head) - 1)), *map(row, rows), ""]


def number(value: float | None, digits: int = 0) -> str:
    """A figure, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def ratio(base: float | None, value: float | None) -> str:
    """How many times faster than the base."""
    return "" if base is None or value is None else f" ({base / value:.2f} ×)"


def pace_tables(results: Results, model: str, workers: int) -> list[str]:
    """Step time and time to the target, one line a method."""
    links = results.links(model, workers)
    if not links:
        return []
    parameters = results.all["parameters"][model]
    target = results.all["targets"][model]
    lines = [f"### {model.capitalize()} model ({parameters / 1e6:.2f} M parameters), {workers} processes", "",
             "Median step in ms (times faster than gloo):", ""]
    rows = []
    for method in results.methods:
        cells = []
        for link in links:
            base, own = (results.pace(model, workers, link, m) for m in ("gloo", method))
            cells.append(number(own and own["median_ms"], 0 if model == "heavy" else 1)
                         + ("" if method == "gloo" else ratio(base and base["median_ms"], own and own["median_ms"])))
        rows.append([NAMES[method], *cells])
    lines += table(["", *links], rows)
    if not any(results.trainings(model, workers, method) for method in results.methods):
        return lines
    seeds = max(len(results.trainings(model, workers, m)) for m in results.methods)
    lines += [f"Seconds to a held-out loss of {target} nats per byte (times faster than gloo): median steps to it over "
              f"{seeds} seed{'s' * (seeds > 1)} × the step above. In square brackets: a whole run on that very link, by the clock.", ""]
    rows = []
    for method in results.methods:
        cells = [number(results.steps_to_target(model, workers, method))]
        for link in links:
            base, own = (results.seconds_to_target(model, workers, link, m) for m in ("gloo", method))
            direct = results.direct(model, workers, link, method)
            cells.append(number(own, 1) + ("" if method == "gloo" else ratio(base, own))
                         + (f" [{direct:.1f}]" if direct is not None else ""))
        rows.append([NAMES[method], *cells])
    return lines + table(["", "steps", *links], rows)


def loss_table(results: Results) -> list[str]:
    """Final losses over the seeds against those without compression."""
    rows = []
    for model in results.models():
        for workers in results.workers():
            dense = {r["seed"]: r["final"] for r in results.trainings(model, workers, "gloo")}
            if len(dense) < 3:
                continue
            spread = max(dense.values()) - min(dense.values())
            for method in results.methods:
                own = {r["seed"]: r for r in results.trainings(model, workers, method)}
                if own.keys() != dense.keys():
                    continue
                finals = [r["final"] for r in own.values()]
                away = statistics.mean(r["final"] - dense[seed] for seed, r in own.items())
                rows.append([f"{model}, {workers} processes: {NAMES[method]}",
                             f"{statistics.mean(finals):.3f}", f"{min(finals):.3f} … {max(finals):.3f}",
                             "" if method == "gloo" else f"{away:+.3f}",
                             "" if method == "gloo" else ("yes" if abs(away) <= spread else "**no**"),
                             "yes" if all(r["in_step"] for r in own.values()) else "**no**"])
    if not rows:
        return []
    return ["### Final loss over the seeds", "",
            "Held-out loss at the end of the runs. The spread of no compression is its largest minus its smallest.", "",
            *table(["", "mean", "range", "mean difference to gloo, same seeds", "within the spread of gloo",
                    "parameters equal on all processes"], rows)]


def memory_table(results: Results) -> list[str]:
    """Peak memory of a training process."""
    records = results.all["memory"]
    if not records:
        return []
    dense = next((r for r in records if r["method"] == "gloo"), None)
    rows = []
    for r in records:
        cells = [NAMES[r["method"]]]
        for key in ("steady", "peak"):
            more = None if dense is None else (r[key] - dense[key]) / r["gradient"]
            cells += [number(r[key]), number(more, 1)]
        rows.append(cells)
    return ["### Memory of a training process, heavy model, 2 processes", "",
            f"Resident memory in MiB after some steps, and its peak; the gradient has {records[0]['gradient']:.0f} MiB. "
            "The peak of THC is the moment when DDP makes other buckets and error feedback moves along.", "",
            *table(["", "between steps", "more than gloo, in gradients", "peak", "more than gloo, in gradients"], rows)]


def markdown(raw: dict[str, Any]) -> str:
    """All tables."""
    results = Results(raw)
    about = raw["machine"]
    lines = [f"Measured {about['date'][:10]} on {about['cores']} cores ({about['cpu']}), {about['memory_gib']} GiB, Linux "
             f"{about['kernel']}, torch {about['torch']}, one thread a process; load {about['load_before']:.1f} before the "
             f"start; {raw['minutes']:.0f} minutes.", ""]
    if raw["quick"]:
        lines += ["**Quick run:** few steps, for a first impression only.", ""]
    for model in results.models():
        for workers in results.workers():
            lines += pace_tables(results, model, workers)
    lines += loss_table(results) + memory_table(results)
    if raw["not_run"]:
        lines += ["### Not run", "", *(f"- {miss['part']}: {miss['why']}" for miss in raw["not_run"]), ""]
    return "\n".join(lines)
