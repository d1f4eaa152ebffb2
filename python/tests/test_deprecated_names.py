"""Names of the previous version: each warns, names the new one, and does the same."""

import importlib
import sys

import pytest

from thc.adapt import ThresholdTable
from thc.asynchronous import Pushed
from thc.stats import Stats

OLD_NAMES = [
    (ThresholdTable, "raw", "record_raw"),
    (ThresholdTable, "compressed", "record_compressed"),
    (ThresholdTable, "changed", "link_changed"),
    (ThresholdTable, "agreed", "common_threshold"),
    (Stats, "saved", "saved_bytes"),
    (Pushed, "taken", "accepted_shards"),
]


@pytest.mark.parametrize(("owner", "old", "new"), OLD_NAMES[:-1])
def test_old_names_are_the_new_ones(owner, old, new):
    with pytest.warns(DeprecationWarning, match=f"{owner.__name__}.{old} is deprecated: use {new}"):
        assert getattr(owner, old) is getattr(owner, new)


def test_an_old_field_is_the_new_one():
    pushed = Pushed(accepted_shards=3, delay=0, refused=[])
    with pytest.warns(DeprecationWarning, match="use accepted_shards"):
        assert pushed.taken == 3


def test_the_optimizers_old_module_is_the_new_one(monkeypatch):
    torch = pytest.importorskip("thc.torch")
    monkeypatch.delitem(sys.modules, "thc.torch.asynchronous", raising=False)
    with pytest.warns(DeprecationWarning, match="thc.torch.asynchronous is deprecated: use thc.torch"):
        old = importlib.import_module("thc.torch.asynchronous")
    assert (old.AsynchronousSGD, old.coordinates, old.tensors) == (torch.AsynchronousSGD, torch.coordinates, torch.tensors)


def test_old_names_in_torch():
    hook = pytest.importorskip("thc.torch.baselines.hook")
    with pytest.warns(DeprecationWarning, match="use layer_parameters"):
        assert hook.LayerwiseHook.chosen is hook.LayerwiseHook.layer_parameters
    import torch

    import thc.torch

    with pytest.warns(DeprecationWarning, match="use thc.torch.wrap_sharded"), pytest.raises(TypeError, match="fully_shard"):
        thc.torch.sharded(torch.nn.Linear(1, 1))
