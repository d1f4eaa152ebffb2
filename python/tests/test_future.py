"""What DDP waits for: a future with the bucket in it, and exceptions that keep their type."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import thc
from conftest import needs

needs("torch")

import torch  # noqa: E402
from thc.torch.engine.bucket import Bucket  # noqa: E402
from thc.torch.ddp.future import BucketFuture, PassError  # noqa: E402
from thc.torch.compression.layout import Layout, Segment  # noqa: E402


def bucket(future: BucketFuture, buffer: torch.Tensor) -> Bucket:
    return Bucket(0, True, buffer, [], Layout("test", [Segment("p", 0, buffer.numel(), True)]), future, None)


def test_the_future_has_the_bucket_in_it() -> None:
    """On a GPU a future waits for the streams of the tensors in it, and for nothing if there are none (`checks_gpu`)."""
    buffer = torch.ones(3)
    future = BucketFuture(buffer, PassError(), is_last=True)
    assert not future.future.done()
    threading.Thread(target=bucket(future, buffer).release).start()
    assert future.future.wait() is buffer and future._promise.value() is buffer


def test_outside_of_a_backward_pass_the_future_raises() -> None:
    buffer = torch.ones(3)
    future = BucketFuture(buffer, PassError(), is_last=True)
    bucket(future, buffer).release(thc.MissingError("gone"))
    with pytest.raises(RuntimeError, match="gone"):
        future.future.wait()


def test_a_bucket_is_released_once() -> None:
    buffer = torch.ones(3)
    future = BucketFuture(buffer, PassError(), is_last=True)
    made = bucket(future, buffer)
    made.release()
    made.release(thc.MissingError("gone"))
    assert torch.equal(future.future.wait(), torch.ones(3))


class Through(torch.autograd.Function):
    """Does something in a backward pass, where DDP would run its hook."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, work: Any) -> torch.Tensor:
        ctx.work = work
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.work()
        return grad, None


def test_within_one_the_exception_comes_from_it_as_it_is_and_after_what_was_queued_later() -> None:
    pass_error, order = PassError(), list[str]()
    buffer = torch.ones(3)
    error = thc.MissingError("gone")

    def hook() -> None:
        future = BucketFuture(buffer, pass_error, is_last=True)
        # As DDP does, which waits for futures there.
        torch.autograd.Variable._execution_engine.queue_callback(lambda: order.append(f"finalized {future.future.wait() is buffer}"))
        threading.Thread(target=bucket(future, buffer).release, args=[error]).start()

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(thc.MissingError) as raised:
        Through.apply(x, hook).sum().backward()
    assert raised.value is error and order == ["finalized True"]
    assert bool(buffer.isnan().all()), "what is no mean is NaN"
    # It is told once.
    Through.apply(x, lambda: pass_error.await_end(is_last=True)).sum().backward()


def test_memory_that_is_forgotten_by_another_thread_is_there_all_the_same() -> None:
    """DDP's thread forgets the staging memory of old buckets while the sequencer takes it."""
    layout = Layout("test", [Segment("p", 0, 5, True)])
    device = torch.device("cpu")

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_name == "staging" and event == "line":
            layout._staging = None
        return trace

    layout.staging(device)
    sys.settrace(trace)
    try:
        found = layout.staging(device)
    finally:
        sys.settrace(None)
    assert found is not None and found.numel() == 5
