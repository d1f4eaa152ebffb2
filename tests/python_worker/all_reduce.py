"""Averages a file of little-endian f32 with the other workers of a job: `all_reduce.py --help`."""

import argparse
import json
import sys

import numpy as np

import session
import wire


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ps", required=True, help="HOST:PORT of the parameter server, an IPv4 address")
    parser.add_argument("--job", type=int, default=1)
    parser.add_argument("--worker", type=int, required=True)
    parser.add_argument("--cookie", type=lambda text: int(text, 0), required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--mode", choices=["thc", "raw"], default="thc")
    parser.add_argument("--key", type=lambda text: int(text, 0), default=0, help="the tensor's name (P3)")
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    host, port = arguments.ps.rsplit(":", 1)
    worker = session.Worker((host, int(port)), arguments.job, arguments.worker, arguments.cookie)
    mode = wire.UNCOMPRESSED if arguments.mode == "raw" else wire.COMPRESSED
    try:
        worker.join()
        try:
            for _ in range(arguments.repeat):
                mean = worker.all_reduce(np.fromfile(arguments.input, "<f4"), mode, arguments.key)
        finally:
            worker.leave()
    except (session.SessionError, session.CallError) as error:
        sys.exit(f"error: {error}")
    mean.astype("<f4").tofile(arguments.output)
    print(json.dumps({"repeated": worker.repeated, "answered": worker.answered}))


if __name__ == "__main__":
    main()
