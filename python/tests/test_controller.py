"""Groups that a real controller tells where to go."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import thc
from conftest import needs_ipv6, outcomes, run_ranks, run_together
from servers import Controller, ParameterServer


@pytest.fixture(scope="module")
def controller() -> Iterator[Controller]:
    with ParameterServer() as server, Controller(server, train={}, ranked={}, full={"workers": 1}) as controller:
        yield controller


def check_average(groups: list[thc.Group]) -> None:
    arrays = [np.full(5000, float(number), np.float32) for number in range(len(groups))]
    run_together(*[lambda g=g, a=a: g.allreduce(a, mode="raw") for g, a in zip(groups, arrays)])
    for array in arrays:
        assert np.allclose(array, (len(groups) - 1) / 2)


def test_workers_get_their_numbers(controller: Controller) -> None:
    groups = run_together(*[lambda: thc.Group(controller.url("train"), join=thc.Join(join_timeout=20))] * 2)
    assert sorted(group.worker for group in groups) == [0, 1]
    check_average(groups)
    run_together(*[group.close for group in groups])


def test_ranks_keep_theirs_and_come_back(controller: Controller) -> None:
    for _ in range(2):
        groups = run_together(
            *[lambda w=w: thc.Group(controller.url("ranked"), worker=w, join=thc.Join(join_timeout=20)) for w in range(2)]
        )
        assert [group.worker for group in groups] == [0, 1]
        check_average(groups)
        run_together(*[group.close for group in groups])


def test_workers_over_ipv6() -> None:
    needs_ipv6()
    with ParameterServer(listen="[::1]:0") as server, Controller(server, train={}) as controller:
        groups = run_together(*[lambda: thc.Group(controller.url("train"), join=thc.Join(join_timeout=20))] * 2)
        check_average(groups)
        run_together(*[group.close for group in groups])


def test_from_the_environment_as_torchrun_sets_it(controller: Controller) -> None:
    script = (
        "import thc, numpy as np; g = thc.Group.from_env(); a = np.full(9, float(g.worker), np.float32); "
        "g.allreduce(a, mode='raw'); print(a[0], g.worker); g.close()"
    )
    said = run_ranks(script, THC_PS=controller.url("train"), THC_TIMEOUT="20")
    assert [out.strip() for out, _ in said] == ["0.5 0", "0.5 1"]


def test_what_the_controller_refuses(controller: Controller) -> None:
    with pytest.raises(thc.ThcError, match='there is no job "nothing"'):
        thc.Group(controller.url("nothing"), join=thc.Join(join_timeout=5))
    with pytest.raises(thc.ThcError, match="rank 2: job train has the workers 0 to 1"):
        thc.Group(controller.url("train"), worker=2, join=thc.Join(join_timeout=5))
    only = thc.Group(controller.url("full"), join=thc.Join(join_timeout=20))
    with pytest.raises(thc.ThcError, match="has its 1 workers"):
        thc.Group(controller.url("full"), join=thc.Join(join_timeout=5))
    only.close()
    # One that waits for another tells who is missing.
    found = outcomes(lambda: thc.Group(controller.url("train"), worker=0, join=thc.Join(join_timeout=2)))
    assert isinstance(found[0], thc.ThcError), found
