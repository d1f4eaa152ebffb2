"""A bucket on its way through the pipeline."""

from __future__ import annotations

import time
from typing import Any, Protocol

from thc.torch.bucket import Bucket
from thc.torch.compressor import Compressor, Flight

__all__ = ["Passage"]


class Owner(Protocol):
    """What knows the step that buckets are part of. All methods are called on the sequencer; :meth:`fail` must not raise."""

    def room(self, bucket: Bucket) -> int:
        """How many buckets may be under way when this one begins, itself among them."""

    def begin(self, passage: Passage) -> None:
        """Sends a bucket on its way."""

    def end(self, passage: Passage) -> None:
        """What comes of a bucket that has been on its way."""

    def fail(self, passage: Passage, error: BaseException) -> None:
        """Something went wrong with it that nothing can be done about."""


class Passage:
    """A bucket on its way through the pipeline."""

    def __init__(self, owner: Owner, bucket: Bucket) -> None:
        self._owner, self.bucket = owner, bucket
        self.compressor: Compressor | None = None
        self.fetched: Any = None
        self.flight: Flight | None = None
        self.began = self.landed = 0.0
        """When its calls began and were over."""
        self.over = False
        """Whether its calls were over when they had been submitted."""
        self.finite = True
        self.error: BaseException | None = None
        self.has_ended = False
        self.doomed: BaseException | None = None
        """Why it fails although nothing was wrong with it."""

    def room(self) -> int:
        try:
            return self._owner.room(self.bucket)
        except BaseException:
            # To begin will fail for the same reason, and there it is told.
            return 1

    def begin(self) -> bool:
        try:
            self._owner.begin(self)
        except BaseException as error:
            self.error = error
            return False
        if self.over:
            self.wait()
        return self.flight is not None and not self.over

    def wait(self) -> None:
        assert self.compressor is not None and self.flight is not None
        try:
            self.finite = self.compressor.store(self.bucket, self.fetched, self.flight)
        except BaseException as error:
            self.error = error
        self.landed = time.perf_counter()

    def end(self) -> None:
        self.fetched = self.flight = None
        if self.doomed is not None:
            self.release(self.doomed)
            return
        try:
            self._owner.end(self)
        except BaseException as error:
            self._owner.fail(self, error)

    def give_up(self, error: BaseException) -> None:
        self.release(error)

    def release(self, error: BaseException | None = None) -> None:
        """Lets DDP go on."""
        self.bucket.release(error)
