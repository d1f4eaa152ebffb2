"""The classifier of handwritten digits of jax_digits.py, trained by several processes, each with a JAX of its own, through THC over UDP.

    python python/examples/jax_processes.py --processes 4

starts them all on this machine. On several, start it once for each process with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, as torchrun
does; process 0 runs the parameter server, or the one that THC_PS and THC_COOKIE name is used. `--without-thc` averages exactly, as 32-bit integers through the same server.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from typing import Any


def launch(processes: int) -> int:
    """Starts this program as often, and waits for all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = [subprocess.Popen([sys.executable, *sys.argv], env=os.environ | shared | {"RANK": str(rank)}) for rank in range(processes)]
    return max(abs(each.wait()) for each in started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2, help="processes to start, unless RANK is set (%(default)s)")
    parser.add_argument("--steps", type=int, default=300, help="training steps (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images per process and step (%(default)s)")
    parser.add_argument("--without-thc", action="store_true", help="average without compression")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        return launch(arguments.processes)

    # One device of each process: jax_digits.py asks for eight.
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
    try:
        import jax
        import numpy as np
        import optax
        from jax_digits import initial, loss, scores
        from sklearn.datasets import load_digits
    except ImportError as error:
        sys.exit(f"this example needs {error.name}: pip install jax optax scikit-learn")
    import thc
    import thc.jax

    group = thc.Group.from_env() if "THC_PS" in os.environ else thc.Group.local()
    # What is smaller than this is not compressed.
    least = 1 << 40 if arguments.without_thc else 1024
    optimizer = optax.chain(thc.jax.average(group=group, min_size=least), optax.sgd(0.05, momentum=0.9))  # the one line

    @jax.jit
    def train_step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    digits = load_digits()
    images, labels = digits.data.astype(np.float32) / 16, digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    test, train = order[:300], order[300:]
    params = initial(np.random.default_rng(1))  # the same on all processes
    state = optimizer.init(params)
    own = np.random.default_rng(2 + group.worker)
    began = time.perf_counter()
    for number in range(1, arguments.steps + 1):
        chosen = own.choice(train, arguments.batch)
        params, state, value = train_step(params, state, images[chosen], labels[chosen])
        if group.worker == 0 and (number % 50 == 0 or number == arguments.steps):
            print(f"step {number:4}  loss {float(value):.4f}", flush=True)
    jax.block_until_ready(params)
    seconds = time.perf_counter() - began
    digest = float(sum(np.abs(np.asarray(each, np.float64)).sum() for each in jax.tree.leaves(params)))
    if group.worker == 0:
        value, accuracy = loss(params, images[test], labels[test]), float((scores(params, images[test]).argmax(1) == labels[test]).mean())
        print(f"on images not trained on: loss {float(value):.4f}, accuracy {100 * accuracy:.1f} %; {seconds:.1f} s")
        print(group.stats().summary(group.workers))
    print(f"process {group.worker}: parameters {digest!r}", flush=True)
    group.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
