"""`thc.adapt`: the policies, and what they say about wrong measurements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import thc
from thc import adapt


def test_layerwise_is_what_trying_all_finds() -> None:
    generator = np.random.default_rng(4)
    costs = np.sort(generator.random((5, 4)))
    errors = -np.sort(-generator.random((5, 4)))
    bound = adapt.price(costs, errors, [2] * 5).error
    best = min(
        adapt.price(costs, errors, each).cost
        for each in itertools.product(range(4), repeat=5)
        if adapt.price(costs, errors, each).error <= bound
    )
    found = adapt.layerwise(costs, errors, bound, exact=True)
    assert found.cost == pytest.approx(best) == found.least_cost and found.error <= bound * (1 + 1e-9)
    stepped = adapt.layerwise(costs.tolist(), errors.tolist(), bound)
    assert best - 1e-9 <= stepped.cost <= best * 1.01 and stepped.error <= bound


def test_errors_and_bytes_of_tables() -> None:
    given = adapt.thc_error(4, 4, 30, 1 / 32)
    assert given.nmse == pytest.approx(0.013063 / 4 + 0.007267, rel=1e-3) and given.granularity == 30
    chosen = [adapt.thc_error(bits, 4).nmse for bits in (2, 3, 4)]
    assert chosen[0] > chosen[1] > chosen[2] and chosen[2] < given.nmse
    assert adapt.thc_bytes(1 << 20, 4, block=20) == 1024 * 1632 + 136
    assert adapt.thc_bytes(1 << 20, None) > 5 * adapt.thc_bytes(1 << 20, 4)


def test_buckets() -> None:
    # The first bucket hides behind what comes before the second.
    steps = [((x * 1e6, y * 1e6), 0.002 + 8e-3 * y) for x, y in ((1, 1), (2, 3), (3, 2), (5, 4), (4, 1))]
    model = adapt.fit(steps)
    assert model.slopes == pytest.approx([0.0, 8e-9], abs=1e-13) and model.intercept == pytest.approx(0.002)
    assert model.score == pytest.approx(1.0)


def test_the_threshold_table_of_the_paper() -> None:
    table = adapt.ThresholdTable()
    for size, raw, compressed, processing in ((40, 75.5, 37.3, 8.5), (10, 28.5, 24.3, 6.3), (22, 40.2, 28.3, 6.8)):
        table.record_raw(size, raw / 1e3)
        table.record_compressed(size, compressed / 1e3, processing / 1e3)
    assert [round(raw / (compressed + processing), 2) for _, raw, compressed, processing in table.rows()] == [0.93, 1.15, 1.65]
    assert table.threshold() == 22 == adapt.ThresholdTable.common_threshold([table, table])
    assert adapt.ThresholdTable.common_threshold([table, adapt.ThresholdTable()]) is None
    # A gain of 0.93 keeps a size on its side.
    assert table.threshold(10) == 10 == adapt.ThresholdTable.common_threshold([table], 10)


def test_coarse_tables_leave_too_much() -> None:
    left = {(bits, n): adapt.thc_error(bits, n).left for bits in (1, 2) for n in (2, 4, 16)}
    assert all(left[2, n] < adapt.MOST_LEFT for n in (2, 4, 16)) and left[1, 2] < adapt.MOST_LEFT < left[1, 4] < 1 < left[1, 16]


@pytest.mark.parametrize(
    ("says", "work"),
    [
        ("above the bound", lambda: adapt.layerwise([[2, 1]], [[1, 3]], 0.5)),
        ("choice 1 of layer 0", lambda: adapt.layerwise([[2, 1]], [[1, float("nan")]], 1)),
        ("number of steps", lambda: adapt.layerwise([[2, 1]], [[1, 2]], 1, steps=10**9)),
        ("choices of a layer", lambda: adapt.layerwise([[]], [[]], 1)),
        ("layers with errors", lambda: adapt.layerwise([[1, 2]], [[1, 2], [1, 2]], 1)),
        ("choice 7 of layer 0", lambda: adapt.price([[2, 1]], [[1, 2]], [7])),
        ("lane of 8 bits", lambda: adapt.thc_error(4, 64)),
        ("granularity 3", lambda: adapt.thc_error(4, 4, 3, 1 / 32)),
        ("bits of an index", lambda: adapt.thc_bytes(10, 5)),
        ("block is 60", lambda: adapt.thc_bytes(10, 4, block=60)),
        ("measurements", lambda: adapt.fit([])),
        ("buckets of a step", lambda: adapt.fit([((1, 2), 3), ((1,), 3)])),
        ("the time", lambda: adapt.ThresholdTable().record_raw(3, -1)),
    ],
)
def test_wrong_measurements_are_one_line(says: str, work: object) -> None:
    with pytest.raises(thc.ConfigError, match=says) as refused:
        work()  # type: ignore[operator]
    assert "\n" not in str(refused.value)
