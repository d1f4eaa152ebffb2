"""One process of a training: `rank.py RUNS` does the runs of a JSON list, one after the other; rank 0 prints a line for each."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from adapt.tasks import TASKS  # noqa: E402
from baselines import QSGD, LayerwiseHook, PowerSGD, TopK  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

FAMILIES: dict[str, Any] = {"QSGD": QSGD, "TopK": TopK, "PowerSGD": PowerSGD}
DENSE_STEPS = 20
"""First steps without compression."""


def train(run: dict[str, Any], group: Any) -> dict[str, Any]:
    """One run: losses, bytes, plans."""
    task, rank = TASKS[run["task"]](), dist.get_rank()
    torch.manual_seed(run["seed"])
    module = task.model()
    ddp = DistributedDataParallel(module, bucket_cap_mb=0.25)
    optimizer = task.optimizer(ddp)
    steps = run.get("steps", task.steps)
    every = run.get("every", task.every)
    hook: Any = None
    if run["family"] == "THC":
        import thc.torch

        options = thc.torch.Adapt(every=every, threshold=False) if run["layerwise"] else None
        thc.torch.wrap(ddp, group=group(), compression=thc.torch.Compression(warmup=DENSE_STEPS, adapt=options))
        hook = thc.torch.hook_of(ddp)
        before = hook.group.stats()
    elif run["family"] != "none":
        family = FAMILIES[run["family"]]()
        chooses = run["layerwise"] or run.get("accordion")
        hook = LayerwiseHook(family, ddp, default=run["default"], every=every if chooses else 0, warmup=DENSE_STEPS,
                             choices=run.get("choices"), accordion=run.get("accordion"), optimizer=optimizer, layerwise=run["layerwise"])
        ddp.register_comm_hook(hook.state, hook.fn)
    points = []
    started = time.perf_counter()
    for step in range(steps):
        if step == DENSE_STEPS and run["family"] == "THC" and hook is not None:
            before = hook.group.stats()
        loss = task.loss(ddp, run["seed"], step, rank)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if (step + 1) % 40 == 0 or step + 1 == steps:
            points.append((step + 1, *task.held_out(module)))
    seconds = time.perf_counter() - started
    answer: dict[str, Any] = {**run, "points": points, "final": points[-1][1], "score": points[-1][2], "seconds": seconds,
                              "parameters": sum(p.numel() for p in ddp.parameters())}
    dense = 4.0 * answer["parameters"] * (steps - DENSE_STEPS)
    if run["family"] == "THC" and hook is not None:
        after = hook.group.stats()
        answer["bytes"] = after.bytes - before.bytes
        answer["ratio"] = 2 * dense / answer["bytes"]
        answer["overhead"] = hook.adaptive.seconds / seconds if hook.adaptive else 0.0
    elif hook is not None:
        answer["bytes"] = hook.sent - 4.0 * answer["parameters"] * DENSE_STEPS
        answer["ratio"] = dense / answer["bytes"]
        answer["overhead"] = sum(plan.seconds for plan in hook.plans) / seconds
    if hook is not None and hook.plan is not None:
        answer["plans"] = [plan.as_dict() for plan in hook.plans]
    sums = torch.tensor([sum(float(p.detach().double().sum()) for p in ddp.parameters())], dtype=torch.float64)
    low, high = sums.clone(), sums.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    answer["in_step"] = bool(low == high)
    return answer


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    made: list[Any] = []

    def group() -> Any:
        if not made:
            import thc

            given = json.loads(os.environ["BENCH_GROUP"])
            made.append(thc.Group(worker=dist.get_rank(), threads=1, **given))
        return made[0]

    for run in json.loads(sys.argv[1]):
        answer = train(run, group)
        if dist.get_rank() == 0:
            print(json.dumps(answer), file=answers, flush=True)
    for each in made:
        each.close()
    os._exit(0)


if __name__ == "__main__":
    main()
