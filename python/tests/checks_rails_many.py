"""Rails with more ranks on a host, in no order: what their number and order matter to."""

from __future__ import annotations

import checks_rails


def check_each_local_rank_is_a_worker_of_its_own_job() -> None:
    checks_rails.check_each_local_rank_is_a_worker_of_its_own_job()


def check_lengths_that_do_not_divide() -> None:
    checks_rails.check_lengths_that_do_not_divide()


def check_one_rank_loses_its_server() -> None:
    checks_rails.check_one_rank_loses_its_server()
