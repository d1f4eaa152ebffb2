"""THC in JAX. Without a server: compressed values add up, so ``jax.lax.psum`` of small integers is all that ranks exchange.

    mean = thc.jax.pmean(gradients, "data", step)                    # inside shard_map or pmap, instead of jax.lax.pmean
    optimizer = optax.chain(thc.jax.average("data"), optax.adam(1e-3))   # the same with error feedback, in optax's form

    mean = thc.jax.pmean(gradients)                                  # over processes, through a parameter server or switch

It needs jax, and optax for :func:`average` only.
"""

from thc.jax.averaging import Averaging, average, specs
from thc.jax.mean import init_feedback, pmean
from thc.jax.options import Options

__all__ = ["Averaging", "Options", "average", "init_feedback", "pmean", "specs"]
