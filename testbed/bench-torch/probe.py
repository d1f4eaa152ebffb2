"""A TCP stream between two namespaces: `probe.py receive ADDRESS PORT` prints the Gb/s of payload that
`probe.py send ADDRESS PORT SECONDS` got through, without the first fifth of the time."""

import socket
import sys
import time

CHUNK = 1 << 18


def receive(address: str, port: int) -> None:
    with socket.create_server((address, port)) as server:
        server.settimeout(20)
        print("ready", flush=True)
        stream, _ = server.accept()
        with stream:
            stream.settimeout(20)
            span = float(stream.recv(16).decode())
            buffer = memoryview(bytearray(CHUNK))
            started = time.perf_counter()
            counted, since, last = 0, None, started
            while True:
                got = stream.recv_into(buffer)
                if got == 0:
                    break
                last = time.perf_counter()
                if since is not None:
                    counted += got
                elif last - started > span / 5:
                    since = last
            print(counted * 8e-9 / (last - since) if since is not None and last > since else 0.0)


def send(address: str, port: int, seconds: float) -> None:
    with socket.create_connection((address, port), timeout=20) as stream:
        stream.sendall(f"{seconds:<16}".encode())
        data = bytes(CHUNK)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            stream.sendall(data)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
