"""A rank is killed in the middle: ``THC_TEST_KILLED`` says which. The others must end with an error, soon."""

from __future__ import annotations

import os
import signal
import time

import thc
from patience import HANG
from rig import RANK, Weights, backward, gradients, refused, wrap_model

KILLED = int(os.environ["THC_TEST_KILLED"])


def check_the_others_end_with_an_error() -> None:
    model, hook = wrap_model(Weights((300_000, 200_000)), timeout=3, patience=3, rails=True)
    for step in range(2):  # In the second one DDP makes other buckets, by a collective of its own.
        backward(model, gradients(step, sizes=(300_000, 200_000)))
    began = time.monotonic()
    if RANK == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    with refused((RuntimeError, thc.ThcError)):
        backward(model, gradients(2, sizes=(300_000, 200_000)))
    assert time.monotonic() - began < HANG / 5


def close() -> None:
    os._exit(0)  # there is no process group any more
