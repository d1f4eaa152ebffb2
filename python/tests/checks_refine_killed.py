"""A rank is killed in the middle of the second stage. The others end with an error, soon."""

from __future__ import annotations

import os
import signal
import time

import thc
from checks_refine import LAYERS, decide, refining_model, step_of
from patience import HANG
from rig import RANK, SIZE


def check_the_others_end_with_an_error() -> None:
    model, hook, optimizer = refining_model(seconds=0.005, timeout=3, patience=3)
    decide(hook, *[(bucket, 0, "raw") for bucket in range(LAYERS)])
    for step in range(2):
        step_of(model, optimizer, step)
    began = time.monotonic()
    if RANK == SIZE - 1:
        begin = hook.refining.begin

        def dies(buckets: object) -> object:
            os.kill(os.getpid(), signal.SIGKILL)
            return begin(buckets)

        hook.refining.begin = dies
    try:
        for step in range(2, 5):
            step_of(model, optimizer, step)
        hook.settle()
    except (RuntimeError, thc.ThcError) as error:
        told = str(error)
    else:
        raise AssertionError("training went on without a rank")
    assert "process group fails" in told or "Connection" in told, told
    assert time.monotonic() - began < HANG / 5


def close() -> None:
    os._exit(0)  # there is no process group any more
