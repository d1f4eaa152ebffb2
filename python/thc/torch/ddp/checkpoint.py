"""A hook's state for frameworks that save what one rank has."""

from __future__ import annotations

import logging
from typing import Any

import torch

from thc.torch.ddp.hook import Hook
from thc.torch.ddp.wrap import hook_of

__all__ = ["Checkpoint"]

log = logging.getLogger("thc.torch")


class Checkpoint:
    """The state of all ranks' hooks of a model as one, with ``state_dict`` and ``load_state_dict``: for frameworks that write a checkpoint on one rank and
    read it on all, such as Accelerate (``accelerator.register_for_checkpointing(thc.torch.Checkpoint(model))``).

    ``model`` is what :func:`thc.torch.wrap` has returned. Both methods are collectives of all ranks.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.hook: Hook = hook_of(model)

    def state_dict(self) -> dict[str, Any]:
        """On the first rank what all have, on the others nothing. Scales are the same on all ranks, and there once; error feedback is as large as the
        gradients of each rank, and the first one holds that of all for a moment."""
        mine, peers = self.hook.state_dict(), self.hook.peers
        if self.hook.is_alike:
            return {"ranks": peers.size, "alike": True, "states": [mine] if peers.rank == 0 else []}
        return {"ranks": peers.size, "alike": False, "states": peers.gather_objects(mine)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Gives each rank its own. What was saved by another number of ranks, or by a hook that keeps something else, is left out with a warning: training
        goes on with the steps counted, and what compression knew is learnt anew."""
        peers = self.hook.peers
        states, alike = state.get("states", []), bool(state.get("alike"))
        fits = alike == self.hook.is_alike and (alike or state.get("ranks") == peers.size) and len(states) == (1 if alike else peers.size)
        if fits:
            self.hook.load_state_dict(states[0 if alike else peers.rank])
        elif peers.rank == 0:
            log.warning(
                "the checkpoint has the state of %s ranks' hooks and is not of use to %d: scales and error feedback begin anew", state.get("ranks"), peers.size
            )
