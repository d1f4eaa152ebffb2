"""Tables and the picture of what `command.py` has run."""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path
from typing import Any

Run = dict[str, Any]
Points = list[tuple[float, float]]
Compared = tuple[float | None, float]
WAYS = {
    "sync": "synchronous THC",
    "quorum": "synchronous THC, quorum of all but one (`keep_up`)",
    "outer": "`outer`, every 8 steps",
    "averaging": "averages of parameters every 8 steps (torch's `PeriodicModelAverager`)",
    "async": "asynchronous, 8 bits both ways",
}


def time_to_loss(points: Points, target: float) -> float | None:
    """When the loss first was at most the target, on the line between two points."""
    for (before, above), (after, below) in zip(points, points[1:]):
        if below <= target:
            return after if above <= target else before + (after - before) * (above - target) / (above - below)
    return None


def _final(run: Run) -> float:
    return float(run["points"][-1][1])


def best(runs: list[Run]) -> list[list[Run]]:
    """Of each model and way the runs, one a seed, with the rate of the least mean loss at the end."""
    found = []
    for model, way in dict.fromkeys((run["model"], run["way"]) for run in runs):
        rates: dict[float, list[Run]] = {}
        for run in runs:
            if (run["model"], run["way"]) == (model, way):
                rates.setdefault(run["rate"], []).append(run)
        most = max(len(mine) for mine in rates.values())
        found.append(min((mine for mine in rates.values() if len(mine) == most), key=lambda mine: statistics.mean(map(_final, mine))))
    order = list(WAYS)
    return sorted(found, key=lambda mine: order.index(mine[0]["way"]))


def gradient(run: Run) -> float:
    """Seconds that a gradient of a quick worker took."""
    return statistics.mean(rank["gradient"] for rank in run["ranks"][:-1])


def _span(values: list[float], form: str) -> str:
    """Mean and range."""
    mean = format(statistics.mean(values), form)
    return mean if len(values) == 1 else f"{mean} ({min(values):{form}} to {max(values):{form}})"


def loss_at(points: Points, moment: float) -> float:
    """On the line between two points."""
    for (before, first), (after, second) in zip(points, points[1:]):
        if moment <= after:
            return first + (second - first) * (moment - before) / (after - before)
    return points[-1][1]


def by_clock(run: Run, base: Run) -> Compared:
    """As the clock on the wall has it."""
    return _compare(run["points"], base["points"])


def by_gradients(run: Run, base: Run) -> Compared:
    """With time counted in gradients of a quick worker, which leaves out how busy the machine was: as far as both runs go."""
    own, its = ([(seconds / gradient(one), loss) for seconds, loss in one["points"]] for one in (run, base))
    end = min(own[-1][0], its[-1][0])
    return _compare(*([*[point for point in points if point[0] < end], (end, loss_at(points, end))] for points in (own, its)))


def _compare(own: Points, its: Points) -> Compared:
    """How many times sooner one comes to the loss that the other ends with, if it does, and by which share its own is larger then."""
    target = its[-1][1]
    when, base = time_to_loss(own, target), time_to_loss(its, target)
    return base / when if when and base else None, own[-1][1] / target - 1


def _sooner(compared: list[Compared]) -> str:
    ratios = [ratio for ratio, _ in compared if ratio is not None]
    never = f"{len(compared) - len(ratios)} of {len(compared)} never"
    if not ratios:
        return never if compared else "–"
    return _span(ratios, ".2f") + (f"; {never}" if len(ratios) < len(compared) else "")


def _extra_loss(compared: list[Compared]) -> str:
    return f"{100 * statistics.mean(more for _, more in compared):+.1f} %" if compared else "–"


def _row(mine: list[Run], bases: dict[int, Run]) -> str:
    paired = [(run, bases[run["seed"]]) for run in mine if run["seed"] in bases]
    clock, gradients = [by_clock(*pair) for pair in paired], [by_gradients(*pair) for pair in paired]
    ranks = range(len(mine[0]["ranks"]))
    steps = ", ".join(f"{statistics.mean(run['ranks'][rank]['steps'] for run in mine):.0f}" for rank in ranks)
    cells = [
        WAYS[mine[0]["way"]], f"{mine[0]['rate']:g}", f"{len(mine)}", _span([_final(run) for run in mine], ".3f"), _sooner(clock), _extra_loss(clock),
        _sooner(gradients), _extra_loss(gradients), f"{1e3 * statistics.mean(map(gradient, mine)):.0f}", steps,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def verdict(groups: list[list[Run]], bases: dict[int, Run]) -> str:
    """Whether asynchronous training pays, in one sentence, with time counted in gradients: twice as fast with each seed, and no loss that is worse by
    half a percent."""
    mine = next((group for group in groups if group[0]["way"] == "async"), [])
    compared = [by_gradients(run, bases[run["seed"]]) for run in mine if run["seed"] in bases]
    if not compared:
        return ""
    ratios = [ratio for ratio, _ in compared if ratio is not None]
    if len(ratios) < len(compared):
        return "Asynchronous training does not pay here: with some seed it never reaches the loss of synchronous THC."
    worse = statistics.mean(more for _, more in compared)
    if min(ratios) >= 2 and worse <= 0.005:
        return f"Asynchronous training pays here: it reaches the loss of synchronous THC {min(ratios):.1f} times as soon or sooner with each seed, and its own is no worse."
    about = f"it reaches the loss of synchronous THC {min(ratios):.1f} to {max(ratios):.1f} times as soon, and its own is {100 * worse:+.1f} % then"
    if min(ratios) > 1 and worse <= 0.005:
        return f"Asynchronous training gains less than twice the speed here: {about}."
    return f"Asynchronous training does not pay here: {about}."


def table(found: dict[str, Any]) -> str:
    """For each model a table and the verdict."""
    about, lines = found["machine"], []
    loads = [run["load"] for run in found["runs"]]
    lines.append(f"{about['cpu']}, {about['cores']} cores, torch {about['torch']}; load when runs began {min(loads):.1f} to {max(loads):.1f}.")
    for model in dict.fromkeys(run["model"] for run in found["runs"]):
        groups = best([run for run in found["runs"] if run["model"] == model])
        one = groups[0][0]
        bases = {run["seed"]: run for group in groups if group[0]["way"] == "sync" for run in group}
        lines += ["", f"{model}, {one['parameters'] / 1e6:.2f} million parameters, {one['workers']} workers of which one {one['slow']:g} × slower, {one['seconds']:g} s each:", ""]
        lines.append("| way | rate | seeds | loss at the end | × sooner, by the clock | against sync | × sooner, in gradients | against sync | a gradient, ms | steps of the workers |")
        lines.append("|-|-|-|-|-|-|-|-|-|-|")
        lines += [_row(group, bases) for group in groups]
        if said := verdict(groups, bases):
            lines += ["", said]
    return "\n".join(lines)


def draw(found: dict[str, Any], path: Path) -> None:
    """A panel for each model: the mean over seeds of each way, and each seed's line, thin."""
    if importlib.util.find_spec("matplotlib") is None:
        print("not run: the picture: Python has no matplotlib (pip install matplotlib)")
        return
    from plot import curves

    styles = {"sync": ("#d55e00", "-"), "quorum": ("#d55e00", (0, (4, 2))), "outer": ("#000000", (0, (3, 1, 1, 1))), "averaging": ("#999999", "-"), "async": ("#0072b2", "-")}
    panels = []
    for model in dict.fromkeys(run["model"] for run in found["runs"]):
        lines = []
        for group in best([run for run in found["runs"] if run["model"] == model]):
            way = group[0]["way"]
            label = WAYS[way].split(" (")[0].replace("`", "")
            lines.append((label, styles[way], [run["points"] for run in group]))
        panels.append((model, lines))
    curves(panels, path, "held-out loss")
