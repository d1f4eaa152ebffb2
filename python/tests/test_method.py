"""THC as published by its name, and a lookup table of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import thc
from conftest import needs, outcomes, run_together

PUBLISHED = [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30]
LENGTH = 1 << 14


def together(server: thc.Server, **options: Any) -> list[thc.Group]:
    return run_together(*[lambda w=w: thc.Group(server.address, worker=w, cookie=7, join=thc.Join(join_timeout=20), **options) for w in range(2)])


def mean_error(groups: list[thc.Group], feedback: str | None = None) -> float:
    """NMSE of a mean of equal arrays."""
    x = np.random.default_rng(3).standard_normal(LENGTH).astype(np.float32)
    found = run_together(*[lambda g=g: g.allreduce(x.copy(), feedback=feedback) for g in groups])
    assert found[0].tobytes() == found[1].tobytes()
    return float(np.square(found[0] - x).sum() / np.square(x).sum())


def test_the_published_method() -> None:
    with thc.Server(2, 7, method="thc-paper") as server:
        groups = together(server, method="thc-paper")
        assert {group.method for group in groups} == {"thc-paper"}
        assert groups[0].tables[0].values == PUBLISHED and groups[0].tables[0].fraction == 1 / 32
        assert (groups[0].job.bits, groups[0].job.block) == (4, 20)
        with pytest.raises(thc.ConfigError, match="feedback is missing, and method = 'thc-paper' keeps error feedback"):
            groups[0].allreduce(np.ones(9, np.float32))
        # Rounding of two independent workers, and truncation: 0.0138, not a half of the first.
        assert 0.0125 < mean_error(groups, feedback="x") < 0.0155
        assert all(len(group.save_feedback()) == 1 for group in groups)
        run_together(*[group.close for group in groups])


def test_a_job_of_another_method_is_refused() -> None:
    with thc.Server(2, 7) as server:
        join = thc.Join(join_timeout=20)
        for failed in outcomes(*[lambda w=w: thc.Group(server.address, worker=w, cookie=7, method="thc-paper", join=join) for w in range(2)]):
            assert isinstance(failed, thc.ConfigError)
            assert "method is thc-paper, which has granularity = 30, and the job has 122: give the server the same method" in str(failed)


def test_a_method_and_what_it_fixes_exclude_each_other() -> None:
    for key, value in {"bits": 2, "granularity": 31, "block": 13, "table": [0, 1]}.items():
        with pytest.raises(thc.ConfigError, match=f"{key} is .*method = thc-paper fixes {key}"):
            thc.Server(2, 7, method="thc-paper", **{key: value})  # type: ignore[arg-type]
    with pytest.raises(thc.ConfigError, match="thc-paper"):
        thc.Group("127.0.0.1:1", cookie=7, method="thc")


def test_a_compression_and_what_its_method_fixes_exclude_each_other() -> None:
    needs("torch")
    import thc.torch as torch

    assert torch.Compression(method="thc-paper", bits=4, feedback=True).method == "thc-paper"
    for field in ({"bits": 2}, {"block": 13}, {"tables": [{"bits": 2}]}, {"feedback": False}, {"adapt": torch.Adapt()}):
        with pytest.raises(thc.ConfigError, match=f"{next(iter(field))} is .*, and method is 'thc-paper', which fixes it"):
            torch.Compression(method="thc-paper", **field)
    with pytest.raises(thc.ConfigError, match='method is "thc": write "default" or "thc-paper"'):
        torch.Compression(method="thc")


def test_a_table_of_ones_own() -> None:
    with thc.Server(2, 7, table=list(range(16))) as server:
        groups = together(server)
        assert groups[0].tables[0].values == list(range(16)) and groups[0].job.granularity == 15
        assert 1e-3 < mean_error(groups) < 0.05
        run_together(*[group.close for group in groups])
    with pytest.raises(thc.ConfigError, match=r"table is \[0, 1, 2\]: 3 values are no table, give 2, 4, 8 or 16"):
        thc.Server(2, 7, table=[0, 1, 2])
