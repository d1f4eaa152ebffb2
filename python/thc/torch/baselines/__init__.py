"""Other families of compression through the process group, with a parameter for each layer.

What L-GreCo's paper compares: QSGD, TopK with error feedback, PowerSGD; uniform, or with each layer's parameter chosen by
:func:`thc.adapt.layerwise` from errors that are simulated on accumulated gradients::

    hook = LayerwiseHook(PowerSGD(), ddp, default=4, every=100)
    ddp.register_comm_hook(hook.state, hook.fn)

And AQGB as its paper has it, :class:`AqgbHook`: peers that broadcast the first bits of their gradients, and more of them while there is time.
"""

from thc.torch.baselines.aqgb import AqgbHook
from thc.torch.baselines.families import QSGD, Family, PowerSGD, TopK
from thc.torch.baselines.hook import LayerwiseHook

__all__ = ["QSGD", "AqgbHook", "Family", "LayerwiseHook", "PowerSGD", "TopK"]
