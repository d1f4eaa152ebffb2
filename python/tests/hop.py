"""A hop of our own between a worker and its parameter server, that can vanish."""

from __future__ import annotations

import select
import socket
import threading


class Hop:
    """Takes the datagrams of one worker to a server and back, unless it has vanished."""

    def __init__(self, server: str) -> None:
        host, port = server.rsplit(":", 1)
        self._server = (host, int(port))
        self._near, self._far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for each in (self._near, self._far):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
        self.address = f"127.0.0.1:{self._near.getsockname()[1]}"
        self.vanished = threading.Event()
        self.lost = 0
        """Datagrams that came while it had vanished."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def vanish(self, seconds: float) -> None:
        """From now on nothing passes for so long."""
        self.vanished.set()
        threading.Timer(seconds, self.vanished.clear).start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(5)
        self._near.close()
        self._far.close()

    def _run(self) -> None:
        worker = None
        while not self._over.is_set():
            ready, _, _ = select.select([self._near, self._far], [], [], 0.1)
            for each in ready:
                for _ in range(64):
                    try:
                        data, come_from = each.recvfrom(65536)
                    except OSError:
                        break  # all that had come
                    if each is self._near:
                        worker = come_from
                    if self.vanished.is_set():
                        self.lost += 1
                        continue
                    try:
                        if each is self._near:
                            self._far.sendto(data, self._server)
                        elif worker is not None:
                            self._near.sendto(data, worker)
                    except OSError:
                        pass  # full: lost, as on any link
