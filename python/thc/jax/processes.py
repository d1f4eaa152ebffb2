"""The mean of a tree over processes, each with a JAX of its own, through a parameter server or switch."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.experimental import io_callback

from thc import environment, errors
from thc.group import Group
from thc.jax.options import Options

__all__ = ["join_processes", "pmean_of_processes"]

_joined: list[Group] = []
"""The group of this process's calls that name none."""


def join_processes() -> Group:
    """The group of all processes: that of the environment (``THC_PS`` or ``THC_CONFIG``), or one whose server the first of them runs, which
    finds the others as torchrun sets it: ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``."""
    if _joined and _joined[0].closed:
        _joined.clear()
    if not _joined:
        if not environment.is_configured() and "MASTER_PORT" not in os.environ:
            raise errors.ConfigError(
                "pmean without axis_name averages over processes, and nothing says which: set THC_PS, or RANK, WORLD_SIZE, MASTER_ADDR and "
                "MASTER_PORT as torchrun does, or give group=; over the devices of a mapped axis, give axis_name and key"
            )
        _joined.append(Group.from_env() if environment.is_configured() else Group.local())
    return _joined[0]


def _average(group: Group, numbers: npt.NDArray[np.float32], mode: str, feedback: str | None) -> None:
    """In place; NaN on all processes if one of them has a number that is not finite."""
    if not numbers.size:
        return
    try:
        group.allreduce(numbers, mode=mode, feedback=feedback)
    except errors.NonFiniteError:
        numbers.fill(np.nan)


def pmean_of_processes(tree: Any, group: Group | None, feedback: str | None, options: dict[str, Any]) -> Any:
    """See :func:`thc.jax.pmean`."""
    unknown = sorted(options.keys() - {"min_size"})
    if unknown:
        raise TypeError(f"{', '.join(unknown)}: without axis_name the job has these, and options are group, feedback and min_size")
    chosen, members = Options(**options), group or join_processes()
    leaves, structure = jax.tree.flatten(tree)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    for leaf in leaves:
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating) or leaf.dtype == jnp.float64:
            raise TypeError(f"the tree has an array of {leaf.dtype}, and a job averages f32: average it in another way")
    large = [leaf.size >= max(1, chosen.min_size) and jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]

    def concatenate(wanted: bool) -> jax.Array:
        parts = [leaf.reshape(-1).astype(jnp.float32) for leaf, is_large in zip(leaves, large) if is_large == wanted]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, jnp.float32)

    def exchange(compressed: Any, exact: Any) -> tuple[Any, Any]:
        # JAX's own arrays must not be written to.
        first, second = np.array(compressed, np.float32), np.array(exact, np.float32)
        _average(members, first, "compressed", feedback)
        _average(members, second, "raw", None)
        return first, second

    given = concatenate(True), concatenate(False)
    shapes = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in given)
    means = dict(zip((True, False), io_callback(exchange, shapes, *given, ordered=True)))
    found, offsets = [], {True: 0, False: 0}
    for leaf, is_large in zip(leaves, large):
        at = offsets[is_large]
        offsets[is_large] = at + leaf.size
        mean = means[is_large][at : at + leaf.size].reshape(leaf.shape)
        found.append(mean.astype(leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else mean)
    return jax.tree.unflatten(structure, found)
