"""Results as Markdown."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from adapt.tasks import TASKS
from adapt.verdict import AIMS, LIMIT, percent, score_loss, verdict
from report import table

#: The paper's Tables 2 and 3: ratios of L-GreCo over uniform, by family; convolutional nets, then transformers.
PUBLISHED = {("QSGD", "convolutions"): "1.10, 1.41", ("TopK", "convolutions"): "3.78, 2.67", ("PowerSGD", "convolutions"): "1.85, 1.44",
             ("QSGD", "transformer"): "1.16, 1.26", ("TopK", "transformer"): "2.61, 5.2", ("PowerSGD", "transformer"): "1.48, 1.76"}


def write(results: dict[str, Any], out: Path) -> Path:
    """The file made."""
    runs = list(results["runs"].values())
    lines = [*_machine(results), *_tables(runs), *_overhead(runs), *_dynamics(runs), *_sensitivity(results.get("sensitivity"))]
    made = out / "adapt.md"
    made.write_text("\n".join(lines).rstrip() + "\n")
    return made


def _machine(results: dict[str, Any]) -> list[str]:
    about = results.get("machine")
    if about is None:
        return []
    return [f"Measured {about['date'][:10]} on {about['cores']} cores ({about['cpu']}), torch {about['torch']}, 2 processes over gloo, one thread "
            "each. Losses and bytes do not depend on the machine's load.", ""]


def _mean(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    digits = 1 if abs(statistics.mean(values)) >= 10 else 3
    return f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}"


def _tables(runs: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for task in TASKS:
        own = [run for run in runs if run["part"] == "tables" and run["task"] == task]
        dense = [run for run in own if run["family"] == "none"]
        if not dense:
            continue
        rows = [["no compression", "", _mean([r["final"] for r in dense]), _mean([r["score"] for r in dense]), "", "1.0", "", ""]]
        for family in ("QSGD", "TopK", "PowerSGD", "THC"):
            base = {r["seed"]: r for r in own if r["family"] == family and not r["layerwise"]}
            chosen = {r["seed"]: r for r in own if r["family"] == family and r["layerwise"]}
            seeds = sorted(base.keys() & chosen.keys())
            if not seeds:
                continue
            default = base[seeds[0]]["default"]
            named = {"QSGD": f"{default} bits", "TopK": f"{100 * default:g} %", "PowerSGD": f"rank {default}", "THC": f"{default} bits"}[family]
            gain = statistics.mean(chosen[s]["ratio"] / base[s]["ratio"] for s in seeds)
            aim = AIMS.get(family)
            uniform, layerwise = (_mean_loss_of_score(runs, task, [which[s] for s in seeds]) for which in (base, chosen))
            said = "" if aim is None else f" ({verdict(gain, aim, uniform, layerwise)})"
            for name, which, share, more in ((f"{family}, {named}", base, uniform, ""), (f"{family}, L-GreCo", chosen, layerwise, f"**{gain:.2f} ×**{said}")):
                each = [which[s] for s in seeds]
                rows.append([name, "yes" if all(r["in_step"] for r in each) else "**no**", _mean([r["final"] for r in each]),
                             _mean([r["score"] for r in each]), percent(share), f"{statistics.mean(r['ratio'] for r in each):.1f}", more,
                             PUBLISHED.get((family, task), "") if more else ""])
        size = dense[0]["parameters"]
        lines += [f"### {task.capitalize()} ({size / 1e6:.2f} M parameters), {len(dense)} seeds", "",
                  *table(["", "equal on all ranks", "held-out loss", TASKS[task].score, "worse by", "times fewer bytes", "L-GreCo over uniform", "published"], rows)]
    if lines:
        lines = [f"A gain is reached where both ways come within {100 * LIMIT:g} % of the score without compression (L-GreCo, section 5.1); "
                 "what is worse is bold.", "", *lines]
    return lines


def _overhead(runs: list[dict[str, Any]]) -> list[str]:
    """The paper's Table 1: the share of a training's time that choosing takes, errors and solving."""
    rows = []
    for task in TASKS:
        for family in ("QSGD", "TopK", "PowerSGD", "THC"):
            own = [r for r in runs if r["part"] == "tables" and r["task"] == task and r["family"] == family and r["layerwise"] and "overhead" in r]
            if not own:
                continue
            choices = statistics.mean(len(r.get("plans", [])) for r in own)
            step = statistics.mean(1e3 * r["seconds"] / r["points"][-1][0] for r in own)
            share = [100 * r["overhead"] for r in own]
            rows.append([f"{task}, {family}", _mean(share), f"{step:.0f}", f"{choices:.0f}", f"{statistics.mean(share) / 100 * step * own[0]['points'][-1][0] / max(choices, 1):.0f}"])
    if not rows:
        return []
    return ["### What choosing takes (Table 1)", "",
            "The share of the time of a whole training, held-out losses included. Published, once in an epoch on GPUs: 0.04 to 0.56 %.", "",
            *table(["", "share, %", "a step, ms", "choices", "a choice, ms"], rows)]


def _mean_loss_of_score(runs: list[dict[str, Any]], task: str, own: list[dict[str, Any]]) -> float:
    """By what share the scores of these are worse than those without compression, on average."""
    dense = [run["score"] for run in runs if run["part"] == "tables" and run["task"] == task and run["family"] == "none"]
    return score_loss(TASKS[task].score, statistics.mean(run["score"] for run in own), statistics.mean(dense))


def _worse(runs: list[dict[str, Any]], run: dict[str, Any]) -> str:
    """The same of one run, as a table has it; nothing where the others were not measured."""
    dense = any(each["part"] == "tables" and each["task"] == run["task"] and each["family"] == "none" for each in runs)
    return percent(_mean_loss_of_score(runs, run["task"], [run])) if dense else ""


def _dynamics(runs: list[dict[str, Any]]) -> list[str]:
    own = [run for run in runs if run["part"] == "dynamics"]
    if not own:
        return []
    rows = [[run["name"], f"{run['ratio']:.1f}", f"{run['final']:.3f}", f"{run['score']:.2f}", _worse(runs, run)] for run in own]
    return ["### Choices over time (Fig. 6a)", "",
            "PowerSGD on the transformer, default rank 8, a choice every 20 steps; Accordion between ranks 4 and 16.", "",
            *table(["", "times fewer bytes", "held-out loss", "perplexity", "worse by"], rows)]


def _sensitivity(found: dict[str, Any] | None) -> list[str]:
    if not found:
        return []
    rows = [[f"after {p['step']} steps, rank {p['rank']}", f"{p['correlation']:.3f}", f"{p['spearman']:.3f}"] for p in found["points"]]
    return ["### Error against loss (Fig. 7a)", "",
            "One layer alone is compressed by PowerSGD for ten steps from a checkpoint of an uncompressed training; over all layers, how the change of the loss "
            "goes with the error that L-GreCo goes by. Published: above 0.9 for most ranks.", "",
            *table(["", "correlation", "of ranks (Spearman)"], rows)]
