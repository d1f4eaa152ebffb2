"""``Compression(adapt=…)``: which tensors are compressed, and with what, chosen while training and the same on all ranks."""

from __future__ import annotations

import io
from typing import Any

import rig
import thc
import thc.torch
import torch
import torch.distributed as dist
from checks_hook import Books, residuals
from rig import (
    RANK,
    SIZE,
    SIZES,
    Weights,
    backward,
    error_of,
    expect_error,
    exact_mean,
    gradients,
    refused,
    same_everywhere,
    wrap_model,
)

SHORT = {"every": 4, "warmup": 4}
CHOSEN = 6
"""The step before which a hook with these options makes its first choice: two to settle, four of the warm-up."""


def same(thing: Any) -> bool:
    """Whether all ranks have the same."""
    every: list[Any] = [None] * SIZE
    dist.all_gather_object(every, repr(thing))
    return len(set(every)) == 1


def fake_times(hook: thc.torch.Hook, times: Any) -> None:
    """Lets the hook believe that a call took ``times(length, raw)`` seconds, on all ranks alike or not."""
    adaptive = hook.engine.adaptive
    assert adaptive is not None
    record = adaptive.took

    def took(step: int, size: int, raw: bool, seconds: float, processing: float) -> None:
        record(step, size, raw, times(size, raw), 0.0)

    adaptive.took = took  # type: ignore[method-assign]


def check_measured_and_agreed() -> None:
    model, hook = wrap_model(adapt=SHORT)
    books = Books()
    for step in range(CHOSEN + 3):
        assert (hook.plan is None) == (step <= CHOSEN)
        books.step(model, step)
        if step in (1, 3, 5):  # the compressed ones; what these leave out the raw ones take along
            books.balance(hook)
    adaptive = hook.engine.adaptive
    assert adaptive is not None and hook.plan is not None
    assert same((adaptive.threshold, hook.plan.choices(), [(r.error, r.cost) for r in hook.plan.rows]))
    # Each gradient was timed by itself, though several travel in one bucket.
    assert {size for size, *_ in adaptive.table.rows()} == set(SIZES)
    assert any(len(layout.segments) > 1 for layout in hook._buckets.layouts.values())
    # What an embedded server has to choose from.
    names = [table.name for table in adaptive.tables]
    assert names[0] == "4/8" and {"2/4", "8/16"} <= set(names), names
    text = str(hook.plan)
    assert all(f"weights.{i}" in text for i in range(4)) and "300000" in text and "%" in text, text


def check_only_what_pays_is_compressed() -> None:
    model, hook = wrap_model(adapt=SHORT)
    # Compressing takes 14.5 ms whatever the size, and one rank's link is slower than the others'.
    fake_times(hook, lambda length, raw: length * (4e-8 + 1e-8 * RANK) if raw else 0.0145)
    books = Books()
    order = None
    for step in range(CHOSEN + 2):
        books.step(model, step, order)
        if step == CHOSEN - 2:
            means = backward(model, gradients(99))
            books.found = [f + m for f, m in zip(books.found, means)]
            books.exact = [e + m for e, m in zip(books.exact, exact_mean(99))]
    books.balance(hook)
    adaptive = hook.engine.adaptive
    assert adaptive is not None and hook.plan is not None
    slowest = 4e-8 + 1e-8 * (SIZE - 1)
    sizes = sorted({size for size, *_ in adaptive.table.rows()})
    assert adaptive.threshold == next(size for size in sizes if size * slowest > 0.0145), (sizes, adaptive.threshold)
    small, large = [s for s in sizes if s < adaptive.threshold], [s for s in sizes if s >= adaptive.threshold]
    assert small and large, sizes
    # A small gradient is exact now, but for what had been left out of it before, also in one bucket with a large one, which is not.
    together = [{segment.length >= adaptive.threshold for segment in layout.segments} for layout in hook._buckets.layouts.values()]
    assert {True, False} in together, together
    means, wanted = backward(model, gradients(50)), exact_mean(50)
    for index, name in enumerate(f"weights.{i}" for i in range(len(SIZES))):
        raw = SIZES[index] < adaptive.threshold
        error = error_of([means[index]], [wanted[index]])
        assert (error < 1e-12) if raw else error > 1e-4, (name, error)
        assert (hook.plan.choices()[name] == "raw") == raw
        assert bool(hook.state_dict()["feedback"][name].any()) == (not raw)


SCALES = (1.0, 1.0, 0.01, 0.1)


def scaled_gradients(step: int, rank: int = RANK) -> list[torch.Tensor]:
    return [scale * gradient for scale, gradient in zip(SCALES, gradients(step, rank))]


def check_each_layer_gets_a_table() -> None:
    tables = ["bits=2,lane=4", "bits=3", "bits=8"]
    model, hook = wrap_model(adapt={"threshold": False, "every": 10}, server={"tables": tables})
    adaptive = hook.engine.adaptive
    assert adaptive is not None and [t.name for t in adaptive.tables] == ["4/8", "2/4", "3/8", "8/16"]
    found = [torch.zeros(size, dtype=torch.float64) for size in SIZES]
    exact = [torch.zeros(size, dtype=torch.float64) for size in SIZES]
    for step in range(15):
        if step == 12:
            before = hook.group.stats().bytes
        means = backward(model, scaled_gradients(step))
        assert same_everywhere(means)
        for index, scale in enumerate(SCALES):
            found[index] += means[index]
            exact[index] += scale * exact_mean(step)[index]
    plan = hook.plan
    assert plan is not None and same(plan.choices())
    chosen = plan.choices()
    assert chosen["weights.2"] == "2/4" and chosen["weights.0"] in ("4/8", "8/16"), str(plan)
    assert plan.ratio > 1.1 and plan.error <= plan.bound * (1 + 1e-6), str(plan)
    # A small one rides with its neighbour, and a step ends with a call of one coordinate.
    sent = (hook.group.stats().bytes - before) / 3
    assert 0.97 < sent / plan.cost < 1.06, (sent, plan.cost)
    # Nothing is lost for good.
    for index, kept in enumerate(residuals(hook)):
        assert float((exact[index] - found[index] - kept).abs().max()) < 1e-3
    # The error that was foretold, of one step.
    fresh, other = wrap_model(adapt={"threshold": False, "every": 10}, feedback=False, server={"tables": tables})
    for step in range(12):
        means = backward(fresh, scaled_gradients(step))
    assert other.plan is not None and other.plan.choices() == chosen
    for index in (0, 2):
        error = float((means[index] - SCALES[index] * exact_mean(11)[index]).square().sum())
        foretold = other.plan.rows[index].error
        # Ranks' gradients have nothing in common here, so what is cut off falls with their number, too (thc_policy::thc::nmse).
        assert foretold / SIZE * 0.8 < error < foretold * 1.1, (index, error, foretold)


def check_tables_whose_feedback_would_grow_are_not_chosen() -> None:
    coarse = "bits=1,granularity=1,fraction=1/32"
    model, hook = wrap_model(adapt={"threshold": False, "every": 10}, server={"tables": [coarse, "bits=2,lane=4"]})
    assert hook.engine.adaptive is not None and [table.name for table in hook.engine.adaptive.tables] == ["4/8", "2/4"]


def check_nothing_pays() -> None:
    model, hook = wrap_model(adapt=SHORT)
    fake_times(hook, lambda length, raw: 0.001 if raw else 0.002)
    for step in range(CHOSEN + 1):
        backward(model, gradients(step))
    assert hook.plan is not None and "does not pay" in hook.plan.why
    backward(model, gradients(CHOSEN + 1))
    assert error_of(backward(model, gradients(60)), exact_mean(60)) < 1e-12


def check_checkpoint() -> None:
    model, hook = wrap_model(adapt=SHORT)
    fake_times(hook, lambda length, raw: 5e-8 * length if raw else 0.0150)
    for step in range(CHOSEN + 2):
        backward(model, gradients(step))
    file = io.BytesIO()
    torch.save(hook.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    again, resumed = wrap_model(adapt=SHORT)
    resumed.load_state_dict(state)
    assert resumed.engine.adaptive is not None and hook.engine.adaptive is not None and hook.plan is not None
    assert resumed.engine.adaptive.threshold == hook.engine.adaptive.threshold and resumed.engine.adaptive._measured
    assert resumed.plan == hook.plan
    for step in range(6):
        assert same_everywhere(backward(again, gradients(step)))
    assert len(resumed.plans) == len(hook.plans) + 1


def check_mistakes_are_told() -> None:
    _, hook = wrap_model(Weights((100,)))

    def adaptive_model(options: Any, model: Any = None, **others: Any) -> Any:
        return rig.connected(hook.group, model or Weights((100,)), adapt=options, **others)

    expect_error(TypeError, "often", lambda: adaptive_model({"often": 3}))
    expect_error(thc.ConfigError, "every is 0", lambda: adaptive_model({"every": 0}))
    expect_error(thc.ConfigError, "even number", lambda: adaptive_model({"warmup": 3}))
    expect_error(thc.ConfigError, "give a thc.torch.Adapt", lambda: adaptive_model("yes"))
    expect_error(thc.ConfigError, "give the state the model", lambda: rig.connected(hook.group, adapt={}))
    expect_error(thc.ConfigError, f"on rank {SIZE - 1}: give all ranks the same", lambda: adaptive_model({"every": 5 + (RANK == SIZE - 1)}))
    expect_error(thc.ConfigError, "loses nothing", lambda: wrap_model(Weights((100,)), adapt={}, server={"policy": "best-effort"}))


def check_ranks_with_different_plans_hear_of_it() -> None:
    # The last check: a job whose ranks call different all-reduces is of no more use.
    model, hook = wrap_model(adapt=SHORT)
    fake_times(hook, lambda length, raw: 5e-8 * length if raw else 0.0150)
    for step in range(CHOSEN + 2):
        assert same_everywhere(backward(model, gradients(step)))
    assert hook.engine.adaptive is not None
    if RANK == SIZE - 1:
        hook.engine.adaptive.threshold = 0
        hook.engine.adaptive._spans.clear()
    with refused(thc.MismatchError, "workers called different all-reduces", "different plans"):
        backward(model, gradients(99))


class DoublesFirst(torch.nn.Module):
    """Parameters of f64, whose bucket is full first and goes through the process group, beside such as are compressed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Weights()
        self.wide = torch.nn.Parameter(torch.ones(150_000, dtype=torch.float64))

    def forward(self, inputs: Any) -> torch.Tensor:
        return self.inner(inputs) + self.wide.sum()


def check_ranks_agree_where_the_first_bucket_is_not_compressed() -> None:
    model, hook = wrap_model(DoublesFirst(), adapt=SHORT)
    foreign = []
    put = hook.engine.put

    def record(bucket: Any) -> None:
        foreign.append((bucket.index, bucket.foreign))
        put(bucket)

    hook.engine.put = record  # type: ignore[method-assign]
    for step in range(CHOSEN + 2):
        model.zero_grad(set_to_none=True)
        model(gradients(step)).backward()
    assert (0, True) in foreign, foreign
    assert hook.plan is not None and same(hook.plan.choices())


def check_a_table_of_ones_own_is_refused() -> None:
    """Its error is not that of the table which adaptation expects."""
    expect_error(thc.ConfigError, "a table of one's own", lambda: wrap_model(Weights((100,)), adapt={}, server={"table": [*range(15), 20]}))
