"""A hook's state for what saves one checkpoint of all ranks."""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.distributed as dist

from thc.errors import ConfigError
from thc.torch.ddp.hook import Hook
from thc.torch.ddp.wrap import hook_of
from thc.torch.sharding import Replicas

log = logging.getLogger("thc.torch")


class Checkpoint:
    """The state of all ranks as one, with ``state_dict`` and ``load_state_dict``: for what writes a checkpoint on one rank and reads it on all, such as
    Accelerate (``accelerator.register_for_checkpointing(thc.torch.Checkpoint(model))``), and for what writes one together, such as
    ``torch.distributed.checkpoint``.

    ``model`` is what :func:`thc.torch.wrap` or :func:`thc.torch.replicate` has returned. Both methods are collectives of all ranks.
    """

    def __init__(self, model: torch.nn.Module | Replicas) -> None:
        self.hook: Hook | Replicas = model if isinstance(model, Replicas) else hook_of(model)

    def _own_key(self) -> str:
        """The name of this rank's state. What is the same on all ranks is there once."""
        return "all ranks" if self.hook.is_alike else f"rank {dist.get_rank()}"

    def state_dict(self) -> dict[str, Any]:
        """What this rank has, under a name of its own, and on the first rank what all have. Error feedback is as large as the gradients of each rank,
        and the first one holds that of all for a moment."""
        mine = self.hook.state_dict()
        if isinstance(self.hook, Hook) and not mine["feedback"]:
            # What reads a checkpoint into what is there already finds a place for it.
            mine["feedback"] = self.hook.blank_feedback()
        mine["kept"] = "\n".join(sorted(mine["feedback"]))
        peers = self.hook.engine.peers
        states = {self._own_key(): mine}
        if not self.hook.is_alike:
            states |= {f"rank {each['rank']}": each for each in peers.gather_objects(mine)}
        return {"ranks": peers.size, "states": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Gives each rank its own. What was saved by another number of ranks, or by a hook that keeps something else, is left out with a warning: training
        goes on with the steps counted, and what compression knew is learnt anew."""
        peers = self.hook.engine.peers
        mine = state["states"].get(self._own_key())
        if mine is None or (not self.hook.is_alike and state.get("ranks") != peers.size):
            if peers.rank == 0:
                log.warning("the checkpoint has the state of %s ranks' hooks and is not of use to %d: error feedback begins anew", state.get("ranks"), peers.size)
            return
        mine = dict(mine)
        if mine.pop("kept") != "\n".join(sorted(mine["feedback"])):
            raise ConfigError("not all of the checkpoint's error feedback was read: load it when a step has been made, or with the model that saved it")
        self.hook.load_state_dict(mine)
