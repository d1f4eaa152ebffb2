"""Other families of compression through the process group, with a parameter for each layer.

What L-GreCo's paper compares: QSGD, TopK with error feedback, PowerSGD; uniform, or with each layer's parameter chosen by
:func:`thc.adapt.layerwise` from errors that are simulated on accumulated gradients::

    hook = LayerwiseHook(PowerSGD(), ddp, default=4, every=100)
    ddp.register_comm_hook(hook.state, hook.fn)
"""

from baselines.families import QSGD, Family, PowerSGD, TopK
from baselines.hook import LayerwiseHook

__all__ = ["QSGD", "Family", "LayerwiseHook", "PowerSGD", "TopK"]
