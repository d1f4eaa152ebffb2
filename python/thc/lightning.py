"""Lightning: a strategy that averages gradients through THC.

::

    import thc.lightning

    trainer = Trainer(strategy="thc", devices=8, num_nodes=4)

``strategy="thc"`` is :class:`THCStrategy` without options. Checkpoints that Lightning writes contain what the hooks of all ranks know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thc.errors import ConfigError

try:
    from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
except ImportError as error:
    raise ConfigError(f"thc.lightning needs lightning ({error}): pip install lightning") from error

import thc.torch as thc_torch

_KEY = "thc"
"""The key in a checkpoint."""


class THCStrategy(DDPStrategy):
    """Lightning's DDP, whose gradients travel through THC. ``thc`` are options of :func:`thc.torch.wrap`; all others are those of
    ``DDPStrategy``."""

    strategy_name = "thc"

    def __init__(self, *arguments: Any, thc: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._options = dict(thc or {})
        self._checkpoint: thc_torch.Checkpoint | None = None
        self._loaded: Any = None

    @property
    def hook(self) -> thc_torch.Hook | None:
        """The hook of the model, while it is trained by several ranks."""
        hook = None if self._checkpoint is None else self._checkpoint.hook
        return hook if isinstance(hook, thc_torch.Hook) else None

    def configure_ddp(self) -> None:
        super().configure_ddp()
        if self.world_size > 1:
            self._checkpoint = thc_torch.Checkpoint(thc_torch.wrap(self.model, **self._options))
            self._load()

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if self._checkpoint is not None:
            checkpoint[_KEY] = self._checkpoint.state_dict()
        super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_checkpoint(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().load_checkpoint(*arguments, **options)
        # Lightning reads it before there is a model to train.
        self._loaded = found.get(_KEY)
        self._load()
        return found

    def _load(self) -> None:
        if self._checkpoint is not None and self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            self._checkpoint.load_state_dict(loaded)

    def teardown(self) -> None:
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is not None:
            checkpoint.hook.group.close()
        super().teardown()


StrategyRegistry.register("thc", THCStrategy, description="DDP whose gradients travel through THC")
