"""A line between two processes of one host, for short messages and for memory to share."""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import struct
import time
from typing import Any

from thc.errors import MissingError
from thc.segment import Segment

__all__ = ["Door", "Line"]

LONGEST = 1 << 16
"""Bytes of a message."""


class Line:
    """One end. A process that has ended, however that was, is noticed at once."""

    def __init__(self, end: socket.socket, who: str) -> None:
        self._end, self._who = end, who
        self._theirs: dict[int, Segment] = {}
        self._sent: set[int] = set()

    def send(self, message: dict[str, Any], segment: Segment | None = None) -> None:
        """Sends a message, with one of this process's segments if there is one."""
        files = []
        if segment is not None:
            message = {**message, "segment": segment.number}
            if segment.number not in self._sent:
                self._sent.add(segment.number)
                files = [segment.file]
        text = json.dumps(message).encode()
        try:
            socket.send_fds(self._end, [text], files)
        except OSError as error:
            raise self.disconnected_error() from error

    def receive(self) -> tuple[dict[str, Any], Segment | None]:
        """The next message, with the segment that came with it."""
        try:
            text, files, _, _ = socket.recv_fds(self._end, LONGEST, 1)
        except OSError as error:
            raise self.disconnected_error() from error
        if not text:
            raise self.disconnected_error()
        message: dict[str, Any] = json.loads(text)
        number = message.get("segment")
        if number is None:
            return message, None
        if files:
            self._theirs[number] = Segment(files[0], number, owns=False)
        return message, self._theirs[number]

    def forget(self) -> None:
        """Both ends do so between calls: what they share is shared anew."""
        self._theirs.clear()
        self._sent.clear()

    def has_message(self) -> bool:
        """Whether :meth:`receive` would return at once."""
        return bool(select.select([self._end], [], [], 0)[0])

    def disconnected_error(self) -> MissingError:
        """What it means that the other process is not there any more."""
        return MissingError(f"{self._who} has ended or left: its host has nothing to add without it")

    def close(self) -> None:
        """Hangs up."""
        # A thread that waits in `receive` shall hear of it.
        try:
            self._end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._end.close()


class Door:
    """Where other processes of this host come to. Its name means nothing outside of this network namespace."""

    def __init__(self) -> None:
        self.name = f"thc-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{self.name}")
        self._listener.listen(256)

    def admit(self, ranks: list[int], patience: float) -> dict[int, Line]:
        """Lines to these ranks, once all have come."""
        found: dict[int, Line] = {}
        until = time.monotonic() + patience
        with self._listener:
            while len(found) < len(ranks):
                self._listener.settimeout(max(0.01, until - time.monotonic()))
                try:
                    end, _ = self._listener.accept()
                except TimeoutError as error:
                    missing = sorted(set(ranks) - set(found))
                    raise MissingError(f"ranks {missing} of this host did not connect within {patience:.0f} s") from error
                end.setblocking(True)
                uid = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
                if uid != os.getuid():
                    end.close()
                    continue
                line = Line(end, "a process")
                rank = int(line.receive()[0]["rank"])
                found[rank] = Line(end, f"rank {rank}")
        return found

    @staticmethod
    def enter(name: str, rank: int, speaker: int) -> Line:
        """A line to the process whose door has this name."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            end.connect(f"\0{name}")
        except OSError as error:
            raise MissingError(f"rank {speaker}, which speaks for this host, is not there: {error.strerror}") from error
        line = Line(end, f"rank {speaker}, which speaks for this host,")
        line.send({"rank": rank})
        return line
