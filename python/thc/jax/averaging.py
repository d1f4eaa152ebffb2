"""Averaging of gradients as a step of an optimizer, in optax's form."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from thc.group import Group
from thc.jax.mean import Axis, init_feedback, pmean

__all__ = ["Averaging", "average", "specs"]


class Averaging(NamedTuple):
    """What :func:`average` keeps from step to step."""

    count: jax.Array
    """Steps so far, uint32: the keys of calls. The same on all ranks."""
    feedback: jax.Array | None
    """This rank's error feedback (:func:`thc.jax.init_feedback`)."""


_made = itertools.count()
"""All processes make theirs in the same order."""


def average(axis_name: Axis | None = None, *, feedback: bool = True, group: Group | None = None, **options: Any) -> Any:
    """A transformation of gradients for :mod:`optax` that averages them over a mapped axis by :func:`thc.jax.pmean`, with error feedback,
    to be the first of a chain: ``optax.chain(thc.jax.average("data"), optax.adam(1e-3))``. What follows it is then the same on all ranks.
    Options are those of :class:`thc.jax.Options`. Without ``axis_name`` it averages over processes, and error feedback is in the ``group``, not
    in the optimizer's state.

    ``init`` and ``update`` are called inside ``shard_map`` or ``pmap``, each rank on its own part of the state, which :func:`specs`
    tells ``shard_map``.
    """
    import optax

    name = f"average {next(_made)}"

    def init(params: Any) -> Averaging:
        kept = init_feedback(params, **options) if feedback and axis_name is not None else None
        return Averaging(jnp.zeros((), jnp.uint32), kept)

    def update(updates: Any, state: Averaging, params: Any = None) -> tuple[Any, Averaging]:
        del params
        if axis_name is None:
            return pmean(updates, group=group, feedback=name if feedback else None, **options), Averaging(state.count + 1, None)
        found = pmean(updates, axis_name, state.count, state.feedback, **options)
        mean, kept = (found, None) if state.feedback is None else found
        return mean, Averaging(state.count + 1, kept)

    return optax.GradientTransformation(init, update)


def specs(state: Any, axis_name: Axis) -> Any:
    """How a tree, such as an optimizer's state, with an :class:`Averaging` anywhere in it, is sharded: its feedback along the axis, all
    else on every rank alike. Of shapes, too: ``specs(jax.eval_shape(optimizer.init, params), "data")``."""

    def spec(part: Any) -> Any:
        if isinstance(part, Averaging):
            return Averaging(PartitionSpec(), None if part.feedback is None else PartitionSpec(axis_name))
        return PartitionSpec()

    return jax.tree.map(spec, state, is_leaf=lambda part: isinstance(part, Averaging))
