"""Results as Markdown and pictures."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from adapt.tasks import TASKS
from adapt.verdict import AIMS, LIMIT, percent, score_loss, verdict
from report import table
from thc.torch import Plan, plot_plan
from thc.torch.adapt.plot import picture

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
#: The paper's Tables 2 and 3: ratios of L-GreCo over uniform, by family; convolutional nets, then transformers.
PUBLISHED = {("QSGD", "convolutions"): "1.10, 1.41", ("TopK", "convolutions"): "3.78, 2.67", ("PowerSGD", "convolutions"): "1.85, 1.44",
             ("QSGD", "transformer"): "1.16, 1.26", ("TopK", "transformer"): "2.61, 5.2", ("PowerSGD", "transformer"): "1.48, 1.76"}


def write(results: dict[str, Any], out: Path, docs: Path | None) -> list[Path]:
    """The files made."""
    runs = list(results["runs"].values())
    lines = [*_machine(results), *_tables(runs), *_overhead(runs), *_dynamics(runs), *_factors(runs), *_sensitivity(results.get("sensitivity")), *_solvers(results.get("solvers")),
             *_thresholds(results.get("thresholds"))]
    text = "\n".join(lines).rstrip() + "\n"
    (out / "adapt.md").write_text(text)
    made = [out / "adapt.md"]
    for name, draw in (("dynamics", _draw_dynamics), ("choices", _draw_choices), ("sensitivity", _draw_sensitivity)):
        for folder, prefix in ((out, ""), (docs, "adapt-")):
            if folder is not None and draw(results, folder / f"{prefix}{name}.svg"):
                made.append(folder / f"{prefix}{name}.svg")
    if docs is not None:
        page = docs / "adapt.md"
        old = page.read_text()
        before, begin, rest = old.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise SystemExit(f"{page} has no lines {BEGIN} and {END}")
        page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
        made.append(page)
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


def _ratios(run: dict[str, Any]) -> list[tuple[int, float]]:
    """Steps, and bytes without compression over those of the choice."""
    dense = 4.0 * run["parameters"]
    return [(plan["step"], dense / sum(row["cost"] for row in plan["rows"])) for plan in run["plans"]]


def _dynamics(runs: list[dict[str, Any]]) -> list[str]:
    own = [run for run in runs if run["part"] == "dynamics"]
    if not own:
        return []
    rows = [[run["name"], f"{run['ratio']:.1f}", f"{run['final']:.3f}", f"{run['score']:.2f}", _worse(runs, run)] for run in own]
    return ["### Choices over time (Fig. 6a)", "",
            "PowerSGD on the transformer, default rank 8, a choice every 20 steps; Accordion between ranks 4 and 16.", "",
            "![Times fewer bytes over steps](adapt-dynamics.svg)", "",
            *table(["", "times fewer bytes", "held-out loss", "perplexity", "worse by"], rows),
            "![Each layer's rank over steps](adapt-choices.svg)", ""]


def _factors(runs: list[dict[str, Any]]) -> list[str]:
    own = [run for run in runs if run["part"] == "factors"]
    if not own:
        return []
    rows = []
    for run in own:
        # Among two processes a ring moves each byte once each way.
        moved = run.get("moved", 2 * run["bytes"])
        rows.append([f"{run['task']}, rank {run['default']}, {run['name']}", f"{run['final']:.3f}", f"{run['score']:.3f}", _worse(runs, run), f"{moved / 1e6:.1f}"])
    return ["### PowerSGD's factors through THC", "",
            "Both factors are linear in the gradients, so they may go through a job of THC: as 32-bit integers, or compressed once more. "
            "Bytes of a rank both ways, in MB, headers of THC's in.", "",
            *table(["", "held-out loss", "score", "worse by", "MB"], rows)]


def _sensitivity(found: dict[str, Any] | None) -> list[str]:
    if not found:
        return []
    rows = [[f"after {p['step']} steps, rank {p['rank']}", f"{p['correlation']:.3f}", f"{p['spearman']:.3f}"] for p in found["points"]]
    return ["### Error against loss (Fig. 7a)", "",
            "One layer alone is compressed by PowerSGD for ten steps from a checkpoint of an uncompressed training; over all layers, how the change of the loss "
            "goes with the error that L-GreCo goes by. Published: above 0.9 for most ranks.", "",
            "![Change of the loss over error](adapt-sensitivity.svg)", "",
            *table(["", "correlation", "of ranks (Spearman)"], rows)]


def _solvers(found: list[dict[str, Any]] | None) -> list[str]:
    if not found:
        return []
    rows = []
    for task in ("convolutions", "transformer"):
        for family, default in dict.fromkeys((f["family"], f["default"]) for f in found):
            own = [f for f in found if (f["task"], f["family"], f["default"]) == (task, family, default)]
            if not own:
                continue
            rows.append([f"{task}, {family} {default:g}", f"{own[0]['layers']} × {own[0]['choices']}",
                         f"{max(f['steps'] / f['exact'] for f in own):.5f}", f"{max(f['exact'] / f['least'] for f in own):.6f}",
                         f"{1e3 * statistics.median(f['simulation_seconds'] for f in own):.0f}",
                         f"{1e3 * statistics.median(f['steps_seconds'] for f in own):.1f}",
                         f"{1e3 * statistics.median(f['exact_seconds'] for f in own):.1f}"])
    return ["### The dynamic program of 10,000 steps against the exact solver", "",
            "Worst of three rounds of 40 steps; times are medians, in ms.", "",
            *table(["", "layers × choices", "steps over exact", "exact over least possible", "simulating errors", "steps", "exact"], rows)]


def _thresholds(found: list[dict[str, Any]] | None) -> list[str]:
    if not found:
        return []
    lines = ["### Communication threshold table (SlimGC's Fig. 6)", "",
             "Tensors one by one between 2 workers and a server, every second time compressed; medians of ten rounds, in ms, of rank 0. "
             "Published, compressing on a CPU: gains of 0.93 at 1 MB to 1.65 at 4 MB, threshold 2.2 MB.", ""]
    for each in found:
        rows = [[f"{size:,}", *(f"{1e3 * t:.2f}" for t in (raw, compressed, processing, compressed + processing)), f"{gain:.2f}"]
                for size, raw, compressed, processing, gain in each["rows"]]
        threshold = "compression never pays" if each["threshold"] is None else f"threshold {each['threshold']:,} coordinates"
        lines += [f"{each['rate']:g} Gb/s: {threshold}.", "", *table(["coordinates", "t_c", "t_c^q", "t_p^q", "t^q", "t_c / t^q"], rows)]
    return lines


def _draw_dynamics(results: dict[str, Any], path: Path) -> bool:
    own = [run for run in results["runs"].values() if run["part"] == "dynamics"]
    if not own:
        return False
    styles = {"uniform": ("#444444", "-"), "Accordion": ("#0072b2", (0, (4, 1.5))), "L-GreCo": ("#d55e00", "-"),
              "L-GreCo + Accordion": ("#e69f00", (0, (1, 1.2)))}
    with picture(path, 6, 3) as (_, ((panel,),)):
        for run in own:
            colour, dashes = styles[run["name"]]
            points = _ratios(run) if "plans" in run else [(20, run["ratio"]), (run["points"][-1][0], run["ratio"])]
            panel.step([p[0] for p in points], [p[1] for p in points], where="post", color=colour, linestyle=dashes, linewidth=1.7,
                       label=f"{run['name']} (all in all {run['ratio']:.1f})")
        panel.set_ylim(bottom=0)
        panel.set_xlabel("step")
        panel.set_ylabel("times fewer bytes")
        panel.legend(frameon=False)
    return True


def _draw_choices(results: dict[str, Any], path: Path) -> bool:
    run = next((r for r in results["runs"].values() if r.get("name") == "L-GreCo" and "plans" in r), None)
    if run is None:
        return False
    plans = [Plan.from_dict(plan) for plan in run["plans"]]
    # Vectors have no rank.
    matrices = [i for i, row in enumerate(plans[0].rows) if any(p.rows[i].error > 0 for p in plans)]
    plot_plan([Plan(p.step, [p.rows[i] for i in matrices], p.uniform, p.bound) for p in plans], path)
    return True


def _draw_sensitivity(results: dict[str, Any], path: Path) -> bool:
    found = results.get("sensitivity")
    if not found:
        return False
    steps = sorted({point["step"] for point in found["points"]})
    with picture(path, 4 * len(steps), 3, columns=len(steps)) as (_, axes):
        for panel, when in zip(axes[0], steps):
            for point, (mark, colour) in zip([p for p in found["points"] if p["step"] == when], (("o", "#d55e00"), ("s", "#0072b2"), ("^", "#009e73"))):
                panel.plot(point["errors"], point["changes"], mark, color=colour, markersize=4, label=f"rank {point['rank']}: {point['correlation']:.2f}")
            panel.set_title(f"after {when} steps", fontsize=9)
            panel.set_xlabel("squared error of the layer")
            panel.set_ylabel("change of the loss")
            panel.legend(frameon=False)
    return True
