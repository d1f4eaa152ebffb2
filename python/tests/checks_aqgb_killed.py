"""A rank is killed between its two stages. The others end with an error, soon."""

from __future__ import annotations

import os
import signal
import time

from checks_aqgb import make_hook
from checks_refine import step_of
from patience import HANG
from rig import RANK, SIZE


def check_the_others_end_with_an_error() -> None:
    model, hook, optimizer = make_hook(seconds=0.01)
    for step in range(2):
        step_of(model, optimizer, step)
    began = time.monotonic()
    if RANK == SIZE - 1:

        def dies(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        hook._second_stage = dies  # type: ignore[method-assign]
    try:
        for step in range(2, 5):
            step_of(model, optimizer, step)
        hook.settle()
    except RuntimeError as error:
        assert str(error)
    else:
        raise AssertionError("training went on without a rank")
    assert time.monotonic() - began < HANG / 5


def close() -> None:
    os._exit(0)  # there is no process group any more
