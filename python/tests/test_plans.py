"""Plans: what a span of an array travels as."""

import numpy as np
import pytest

import thc
from conftest import outcomes, run_together

WORKERS = 3
LENGTHS = [5000, 1, 2000, 9000, 1024, 700]


@pytest.fixture
def groups():
    tables = ["bits=1,lane=4", "bits=2", "bits=3,lane=16", "bits=8,table_id=200"]
    with thc.Server(WORKERS, 77, tables=tables) as server:
        joined = run_together(*[lambda i=i: thc.Group(server.address, 1, i, 77) for i in range(WORKERS)])
        yield joined
        for group in joined:
            group.close()


def test_every_table_of_the_job_may_be_chosen(groups):
    tables = groups[0].tables
    assert [(t.bits, t.width, t.lane) for t in tables] == [(4, 4, 8), (1, 1, 4), (2, 2, 8), (3, 3, 16), (8, 8, 16)]
    assert (tables[4].id, tables[4].values[255], tables[4].granularity) == (200, 255, 255)
    rng = np.random.default_rng(5)
    gradients = [rng.standard_normal(sum(LENGTHS)).astype(np.float32) for _ in groups]
    exact = np.mean(gradients, axis=0)
    choices = [t.id for t in tables] + ["raw"]
    plan = list(zip(LENGTHS, choices))
    before = [group.stats() for group in groups]
    means = run_together(*[lambda g=g, x=x: g.allreduce(x.copy(), plan=plan, feedback="all") for g, x in zip(groups, gradients)])
    assert all(np.array_equal(mean, means[0]) for mean in means)
    errors = []
    for end, length in zip(np.cumsum(LENGTHS), LENGTHS):
        part = slice(end - length, end)
        errors.append(np.sum((means[0][part] - exact[part]) ** 2) / np.sum(exact[part] ** 2))
    # One coordinate alone is anything; 8 bits and raw are nearly exact.
    assert errors[0] < 0.1 and errors[4] < 1e-3 and errors[5] < 1e-12, errors
    # A span's packets: 8 bits take as many bytes as coordinates, raw four, and one bit an eighth.
    sent = [group.stats().bytes_up - then.bytes_up for group, then in zip(groups, before)]
    assert all(bytes_up < 40_000 for bytes_up in sent), sent
    # And as handles, in another order.
    plan = list(zip(LENGTHS, reversed(choices)))
    arrays = [gradient.copy() for gradient in gradients]
    handles = [group.allreduce_async(array, plan=plan) for group, array in zip(groups, arrays)]
    for handle in handles:
        handle.wait()
    assert all(np.array_equal(array, arrays[0]) for array in arrays)


def test_plans_that_fit_nothing_are_one_line(groups):
    array = np.zeros(10, np.float32)
    for plan, says in [
        ([(4, "raw"), (5, 1)], "9 coordinates together, the tensor has 10"),
        ([(10, 77)], "the job has no table 77: its tables are 1, "),
        ([(10, "thc")], "give the id of one of the job's tables"),
        ([(0, "raw"), (10, 1)], "lengths are at least 1"),
        ([(10, 256)], "ids 1 to 255"),
    ]:
        with pytest.raises(thc.ConfigError, match=says) as error:
            groups[0].allreduce(array, plan=plan)
        assert "\n" not in str(error.value)


def test_ranks_that_plan_differently_are_told(groups):
    first = groups[0].tables[0].id
    plans = [[(3000, first)], [(3000, first)], [(1000, first), (2000, "raw")]]
    failed = outcomes(*[lambda g=g, plan=plan: g.allreduce(np.ones(3000, np.float32), plan=plan) for g, plan in zip(groups, plans)])
    assert [type(error) for error in failed] == [thc.MismatchError] * WORKERS, failed
