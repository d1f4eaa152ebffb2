"""A classifier of handwritten digits (scikit-learn's, 1797 images of 8 × 8) in JAX, trained on all devices through THC, no server.

    python python/examples/jax_digits.py

Without accelerators the devices are 8 of the CPU. `--without-thc` trains the same with `jax.lax.pmean`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from jax.sharding import Mesh, PartitionSpec
    from sklearn.datasets import load_digits
except ImportError as error:
    sys.exit(f"this example needs {error.name}: pip install jax optax scikit-learn")

import thc.jax

WIDTHS = (64, 512, 512, 10)


def initial(random: Any) -> list[dict[str, Any]]:
    """Weights and biases of the layers."""
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        weights = random.uniform(-1, 1, (inputs, outputs)) / np.sqrt(inputs)
        layers.append({"weights": jnp.asarray(weights, jnp.float32), "bias": jnp.zeros(outputs, jnp.float32)})
    return layers


def scores(params: list[dict[str, Any]], images: jax.Array) -> jax.Array:
    for layer in params[:-1]:
        images = jax.nn.relu(images @ layer["weights"] + layer["bias"])
    return images @ params[-1]["weights"] + params[-1]["bias"]


def loss(params: list[dict[str, Any]], images: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, images), labels).mean()


def exact(axis_name: str) -> optax.GradientTransformation:
    """What `thc.jax.average` takes the place of."""
    return optax.stateless(lambda gradients, _: jax.lax.pmean(gradients, axis_name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images per device and step (%(default)s)")
    parser.add_argument("--without-thc", action="store_true", help="average by jax.lax.pmean instead")
    arguments = parser.parse_args()

    digits = load_digits()
    images, labels = digits.data.astype(np.float32) / 16, digits.target.astype(np.int32)
    random = np.random.default_rng(0)
    order = random.permutation(len(images))
    test, train = order[:300], order[300:]

    average = exact("data") if arguments.without_thc else thc.jax.average("data")  # the one line
    optimizer = optax.chain(average, optax.sgd(0.05, momentum=0.9))

    def step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        # Of this device's images alone: without pcast, JAX would itself add up the gradients of what all devices have alike.
        own = jax.lax.pcast(params, "data", to="varying")
        value, gradients = jax.value_and_grad(loss)(own, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, jax.lax.pmean(value, "data")

    mesh = Mesh(np.array(jax.devices()), ("data",))
    params = initial(random)
    everywhere, data = PartitionSpec(), PartitionSpec("data")
    specs = thc.jax.specs(jax.eval_shape(optimizer.init, params), "data")
    start = jax.jit(jax.shard_map(optimizer.init, mesh=mesh, in_specs=everywhere, out_specs=specs))
    train_step = jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=(everywhere, specs, data, data), out_specs=(everywhere, specs, everywhere))
    )

    state = start(params)
    began = time.perf_counter()
    for number in range(1, arguments.steps + 1):
        chosen = random.choice(train, arguments.batch * len(jax.devices()))
        # Devices that are threads of one processor must not be steps apart: their collectives would wait for threads.
        params, state, value = jax.block_until_ready(train_step(params, state, images[chosen], labels[chosen]))
        if number % 50 == 0 or number == arguments.steps:
            print(f"step {number:4}  loss {value:.4f}", flush=True)
    seconds = time.perf_counter() - began

    found = scores(params, images[test])
    value = loss(params, images[test], labels[test])
    accuracy = float((found.argmax(1) == labels[test]).mean())
    print(f"on images not trained on: loss {value:.4f}, accuracy {100 * accuracy:.1f} %; {seconds:.1f} s on {len(jax.devices())} devices")


if __name__ == "__main__":
    main()
