"""`thc.jax.pmean` over processes, each with JAX's CPU build, through a real parameter server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import needs
from crew import free_port
from patience import HANG

needs("jax", "optax")

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "jax_processes.py"

SCRIPT = """
import os, jax, jax.numpy as jnp, numpy as np, optax, thc, thc.jax
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def tree(rank, step=0):
    random = np.random.default_rng([rank, step])
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
    return {"large": normal(40, 1000), "half": jnp.asarray(normal(3000), jnp.bfloat16), "small": normal(7), "count": np.arange(5) + rank}

def exact(step=0):
    every = [tree(each, step) for each in range(size)]
    return jax.tree.map(lambda *parts: np.mean([np.asarray(part, np.float64) for part in parts], 0), *every)

def error(found, wanted):
    return float(np.square(np.asarray(found, np.float64) - wanted).sum() / np.square(wanted).sum())

@jax.jit
def mean(tree):
    return thc.jax.pmean(tree, feedback="gradients")

for step in range(3):
    found, wanted = mean(tree(rank, step)), exact(step)
    assert found["half"].dtype == jnp.bfloat16 and found["count"].dtype == jnp.float32 and found["large"].shape == (40, 1000)
    assert 1e-4 < error(found["large"], wanted["large"]) < 0.05 and error(found["half"], wanted["half"]) < 0.05
    assert np.allclose(found["small"], wanted["small"], atol=1e-6) and np.allclose(found["count"], wanted["count"], atol=1e-6)
print("mean", np.asarray(found["large"]).tobytes().hex()[:4000])

# Without jit, and with nothing to compress, or nothing at all.
assert np.allclose(thc.jax.pmean(np.full(3, rank, np.float32)), (size - 1) / 2) and thc.jax.pmean({}) == {}

# What is not finite on one process is NaN on all, and all go on.
broken = tree(rank)
if rank == 1:
    broken["large"][3, 3] = np.inf
found = mean(broken)
assert np.isnan(found["large"]).all() and np.isnan(np.asarray(found["half"], np.float32)).all() and np.allclose(found["small"], exact()["small"], atol=1e-6)
assert np.isfinite(mean(tree(rank))["large"]).all()

# In a loop, as a step of an optimizer: the same parameters everywhere.
optimizer = optax.chain(thc.jax.average(), optax.sgd(0.1))
params = {"w": jnp.zeros(5000), "b": jnp.zeros(3)}

@jax.jit
def steps(params, state, targets):
    def step(carry, target):
        params, state = carry
        gradients = jax.grad(lambda p: jnp.square(p["w"] - target).sum() / 2 + jnp.square(p["b"] - rank).sum() / 2)(params)
        updates, state = optimizer.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), None
    return jax.lax.scan(step, (params, state), targets)[0]

targets = np.random.default_rng(rank).standard_normal(5000).astype(np.float32) + np.zeros((60, 1), np.float32)
params, state = steps(params, optimizer.init(params), targets)
wanted = np.mean([np.random.default_rng(each).standard_normal(5000) for each in range(size)], 0)
assert int(state[0].count) == 60 and error(params["w"], wanted) < 0.05, error(params["w"], wanted)
print("params", np.asarray(params["w"]).tobytes().hex()[:4000], np.asarray(params["b"]).tolist())

for wrong, says in (
    (lambda: thc.jax.pmean(targets, key=3), "axis_name"),
    (lambda: thc.jax.pmean(targets, "data"), "has a key"),
    (lambda: thc.jax.pmean(targets, lane=8), "lane"),
    (lambda: thc.jax.pmean(targets.astype(np.complex64)), "complex64"),
):
    try:
        wrong()
    except TypeError as error_:
        assert says in str(error_), error_
    else:
        raise AssertionError(says)
from thc.jax.processes import join_processes
join_processes().close()
try:
    os.environ.pop("MASTER_PORT")
    thc.jax.pmean(targets)
except thc.ConfigError as error_:
    assert "THC_PS" in str(error_)
else:
    raise AssertionError("nothing says which processes")
"""


def start_processes(command: list[str], processes: int) -> list[str]:
    """What processes say, with the variables of torchrun."""
    shared = {key: value for key, value in os.environ.items() if not key.startswith("THC_") and key != "XLA_FLAGS"}
    shared |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"JAX_PLATFORMS": "cpu"}
    ranks = [
        subprocess.Popen(command, env=shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(processes)
    ]
    said = [rank.communicate(timeout=HANG) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * processes, said
    return [out for out, _ in said]


def test_means_of_three_processes() -> None:
    said = start_processes([sys.executable, "-c", SCRIPT], 3)
    assert "mean" in said[0] and "params" in said[0] and said[0] == said[1] == said[2]


def test_the_example_trains() -> None:
    needs("sklearn")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("THC_", "RANK")) and key != "XLA_FLAGS"}
    command = [sys.executable, str(EXAMPLE), "--processes", "2", "--steps", "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, env=environment | {"JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"not trained on: loss ([\d.]+), accuracy ([\d.]+) %", done.stdout)
    assert found and float(found[2]) > 85, done.stdout
    parameters = re.findall(r"process (\d): parameters (\S+)", done.stdout)
    assert len(parameters) == 2 and parameters[0][1] == parameters[1][1], done.stdout
