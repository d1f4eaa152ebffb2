"""The mean of a tree over the ranks of a mapped axis."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from thc.group import Group
from thc.jax.cut import cut, join
from thc.jax.floats import LARGEST_NORM, norm_bits, from_bits
from thc.jax.grid import Affine, Grid
from thc.jax.lanes import lane_bits, pack, packed_length, unpack
from thc.jax.options import Options
from thc.jax.pairs import Pair
from thc.jax.processes import pmean_of_processes
from thc.jax.transform import Keys, draws, forward, inverse

__all__ = ["init_feedback", "pmean"]

Axis = Hashable | tuple[Hashable, ...]


def pmean(
    tree: Any, axis_name: Axis | None = None, key: Any = None, feedback: jax.Array | str | None = None, *, group: Group | None = None, **options: Any
) -> Any:
    """The mean of a tree of arrays over a mapped axis, as :func:`jax.lax.pmean`, but compressed (THC): inside ``shard_map`` or ``pmap``.
    Without ``axis_name``, over processes.

    *Over a mapped axis.* Arrays of floats with at least ``min_size`` coordinates are taken as one vector of f32: each rank rotates and quantizes its own,
    ``lax.psum`` adds the values, of 8 bits or packed in words of 32, and every rank has the same bits of the mean, in the
    arrays' own types. All other arrays, small ones and those of integers, are averaged without compression, by ``psum`` of f32 (of their
    own type if that is wider); means of integers are f32.

    ``key`` is the number of the step, or a key of :mod:`jax.random`: a new one for each call, the same on all ranks. Where ranks have
    different ones, or a rank has a NaN or an infinity in what is compressed, all ranks get NaN for all that is compressed.

    ``feedback`` is what compression lost of this rank's earlier trees (:func:`init_feedback`), added to what is compressed: then mean
    and next feedback are returned, the latter unchanged when the mean is NaN. Options are those of :class:`thc.jax.Options`.

    *Over processes.* ``pmean(tree)`` averages over the members of ``group``, each a process with a JAX of its own, through a parameter server or
    switch, also inside ``jit``, where ``io_callback(ordered=True)`` calls it. All processes call it alike and in the same order, on one
    device each. Without a ``group`` it is that of the environment (``THC_PS``), or one whose server process 0 runs, found by the
    variables of torchrun. ``feedback`` is then a name, under which the group keeps what compression lost and adds it to the next call's. Means of
    integers are f32; arrays of f64 are refused.
    """
    if axis_name is None:
        if key is not None or not (feedback is None or isinstance(feedback, str)):
            raise TypeError("key and an array of feedback belong to a mapped axis: give axis_name, too, or neither")
        return pmean_of_processes(tree, group, feedback, options)
    if group is not None or isinstance(feedback, str) or key is None:
        raise TypeError(f"over the axis {axis_name!r} a call has a key, no group, and an array as feedback, if any")
    chosen = Options(**options)
    leaves, structure = jax.tree.flatten(tree)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    compressed = [at for at, leaf in enumerate(leaves) if _is_compressed(leaf, chosen)]
    means = dict(_exact_means({at: leaf for at, leaf in enumerate(leaves) if at not in set(compressed)}, axis_name))
    if compressed:
        _check_that_they_differ([leaves[at] for at in compressed], axis_name)
        x = jnp.concatenate([leaves[at].reshape(-1).astype(jnp.float32) for at in compressed])
        if feedback is not None and feedback.shape != x.shape:
            raise ValueError(
                f"feedback has shape {feedback.shape}, and the tree has {x.size} coordinates that are compressed: make it with "
                "init_feedback and the same options, and shard it along the axis"
            )
        mean, feedback = _Call(chosen, axis_name, key, x.size).average(x, feedback)
        offset = 0
        for at in compressed:
            leaf = leaves[at]
            means[at] = mean[offset : offset + leaf.size].reshape(leaf.shape).astype(leaf.dtype)
            offset += leaf.size
    result = jax.tree.unflatten(structure, [means[at] for at in range(len(leaves))])
    return result if feedback is None else (result, feedback)


def init_feedback(tree: Any, **options: Any) -> jax.Array:
    """Error feedback of one rank before the first call, for trees of these shapes and types: a vector of zeros. Ranks' vectors, one
    behind the other, are an array that is sharded along the axis, ``PartitionSpec(axis_name)``."""
    chosen = Options(**options)
    return jnp.zeros(sum(leaf.size for leaf in jax.tree.leaves(tree) if _is_compressed(leaf, chosen)), jnp.float32)


def _check_that_they_differ(leaves: list[jax.Array], axis_name: Axis) -> None:
    """Inside ``shard_map`` JAX knows what is the same on all ranks, and the gradient of what is has been added up over them: that is not
    to be averaged again."""
    axes = {axis_name} if not isinstance(axis_name, tuple) else set(axis_name)

    def varies(x: jax.Array) -> bool:
        kind = jax.typeof(x)
        # Named so from JAX 0.10 on, and vma before.
        found = kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else getattr(kind, "vma", ())
        return bool(axes & set(found))

    # Without this knowledge, as in pmap, not even a rank's number varies.
    if varies(lax.axis_index(axis_name)) and not any(varies(leaf) for leaf in leaves):
        raise ValueError(
            f"the tree is the same on all ranks of {axis_name!r}: gradients of parameters that are the same on all ranks have been added up "
            f'by JAX itself. Take gradients with respect to jax.lax.pcast(params, {axis_name!r}, to="varying")'
        )


def _is_compressed(leaf: Any, options: Options) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating)) and leaf.size >= max(options.min_size, 1)


def _exact_means(leaves: dict[int, jax.Array], axis_name: Axis) -> dict[int, jax.Array]:
    """What is not compressed."""
    if not leaves:
        return {}
    wide = {at: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) for at, leaf in leaves.items()}
    found: dict[int, jax.Array] = lax.pmean(wide, axis_name)
    return {at: mean.astype(leaves[at].dtype) if jnp.issubdtype(leaves[at].dtype, jnp.inexact) else mean for at, mean in found.items()}


def _number(key: Any) -> Pair:
    """A step's number or a random key as the 64 bits of a call's number."""
    if isinstance(key, (int, np.integer)):
        return Pair.split(int(key))
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    words = jnp.asarray(key)
    if not jnp.issubdtype(words.dtype, jnp.integer) or words.size not in (1, 2, 4):
        raise TypeError(f"the key of a call is a step's number or a key of jax.random, not {words.shape} of {words.dtype}")
    words = words.reshape(-1)
    if words.size == 1:
        number = words[0]
        high = (number >> 32).astype(jnp.uint32) if number.dtype.itemsize == 8 else jnp.zeros((), jnp.uint32)
        return Pair(high, number.astype(jnp.uint32))
    words = words.astype(jnp.uint32)
    # A generator's key of 128 bits is random in all of them.
    return Pair(words[0], words[1]) if words.size == 2 else Pair(words[0] ^ words[2], words[1] ^ words[3])


class _Call:
    """One all-reduce of a vector."""

    def __init__(self, options: Options, axis_name: Axis, key: Any, length: int) -> None:
        if length >= 1 << 32:
            raise ValueError(f"the tree has {length} coordinates, and one call takes 2^32 - 1: average parts of it, with keys of their own")
        ranks = int(lax.psum(1, axis_name))
        self._axis = axis_name
        self._grid: Grid = options.grid(ranks)
        self._lane = lane_bits(ranks, self._grid.granularity)
        self._runs = cut(length, options.block)
        self._number = _number(key)
        self._keys = Keys(options.seed, self._number, lax.axis_index(axis_name))

    def average(self, x: jax.Array, feedback: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
        """The mean, and the feedback after the call if there was one before."""
        whole = x if feedback is None else x + feedback
        rows = [run.rows(whole) for run in self._runs]
        norms, failed = self._norms(rows)
        affine = [self._grid.affine(from_bits(each.astype(jnp.uint32)), run.size) for run, each in zip(self._runs, norms)]
        lanes, lost = self._compress(rows, affine)
        sums = lax.psum(lanes, self._axis)
        mean = self._decompress(sums, affine, norms)
        mean = jnp.where(failed, np.float32(np.nan), mean)
        if feedback is None:
            return mean, None
        # A partition that nobody sends keeps its feedback, and so does a call that fails.
        kept = [jnp.where(each[:, None] == 0, run.rows(feedback), rest) for run, each, rest in zip(self._runs, norms, lost)]
        return mean, jnp.where(failed, feedback, join(self._runs, kept))

    def _norms(self, rows: list[jax.Array]) -> tuple[list[jax.Array], jax.Array]:
        """The bits of the largest norm of each partition, and whether the call fails: because one of them is not finite, or because
        ranks have different keys. Bits of positive f32 have the order of integers, and those of NaN are above all."""
        words = jnp.stack([self._number.high, self._number.low])
        # The greatest of a number and of its complement are each other's complement where all ranks have the same.
        own = jnp.concatenate([*(norm_bits(each) for each in rows), *(lax.bitcast_convert_type(w, jnp.int32) for w in (words, ~words))])
        found = lax.pmax(own, self._axis)
        norms, greatest, least = found[:-4], found[-4:-2], ~found[-2:]
        failed = (norms > LARGEST_NORM).any() | (greatest != least).any()
        edges = np.cumsum([run.count for run in self._runs])[:-1]
        return jnp.split(norms, edges), failed

    def _compress(self, rows: list[jax.Array], affine: list[Affine]) -> tuple[jax.Array, list[jax.Array]]:
        """Lanes of all runs, and what is lost of each, transformed back."""
        lanes, lost = [], []
        for run, x, numbers in zip(self._runs, rows, affine):
            signs = self._keys.signs(run)
            random = draws(self._keys.roundings(run), run.size, self._keys.stratum)
            values, rest = self._grid.quantize(forward(signs, x), numbers, random)
            lanes.append(pack(values, self._lane))
            lost.append(inverse(signs, rest))
        return jnp.concatenate(lanes), lost

    def _decompress(self, lanes: jax.Array, affine: list[Affine], norms: list[jax.Array]) -> jax.Array:
        """The mean from the sums of all runs; zeros where nobody's norm was above."""
        means = []
        offset = 0
        for run, numbers, norm in zip(self._runs, affine, norms):
            length = packed_length(run.count, run.size, self._lane)
            sums = unpack(lanes[offset : offset + length], run.count, run.size, self._lane)
            mean = inverse(self._keys.signs(run), self._grid.estimate(sums, numbers))
            means.append(jnp.where(norm[:, None] == 0, np.float32(0), mean))
            offset += length
        return join(self._runs, means)
