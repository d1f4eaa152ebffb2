"""Hugging Face's ``Trainer``: a callback that averages gradients through THC.

::

    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.add_callback(thc.transformers.THCCallback(trainer))
    trainer.train()
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from thc.errors import ConfigError

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ConfigError(f"thc.transformers needs transformers ({error}): pip install transformers accelerate") from error

import thc.torch as thc_torch

__all__ = ["THCCallback"]


class THCCallback(TrainerCallback):
    """Wraps the model that a ``Trainer`` has made a ``DistributedDataParallel`` of; ``options`` are those of :func:`thc.torch.wrap`. With one process it does
    nothing. Each rank saves what its hook knows in the trainer's checkpoints, as ``thc-RANK.pt``, and loads it when training goes on from there.
    """

    def __init__(self, trainer: Any, **options: Any) -> None:
        self._trainer, self._options = trainer, options
        self.hook: thc_torch.Hook | None = None
        """The hook, from the beginning of training on."""

    def _file(self, state: Any) -> Path:
        return Path(self._trainer.args.output_dir) / f"checkpoint-{state.global_step}" / f"thc-{self._trainer.args.process_index}.pt"

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.world_size < 2:
            return
        model = self._trainer.model_wrapped
        if not isinstance(model, DistributedDataParallel):
            raise ConfigError(
                f"the trainer has made a {type(model).__name__} of the model, and THCCallback takes a DistributedDataParallel: with FSDP use "
                "thc.torch.replicate, with DeepSpeed the backend \"thc\""
            )
        self.hook = thc_torch.hook_of(thc_torch.wrap(model, **self._options))
        file = self._file(state)
        if state.global_step and file.exists():
            self.hook.load_state_dict(torch.load(file, weights_only=True))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.hook is not None:
            file = self._file(state)
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.save(self.hook.state_dict(), file)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.hook is not None:
            self.hook.group.close()
