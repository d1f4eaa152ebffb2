"""Compression on the device that has the gradients: only indices and sums cross to the host and back.

``compiled`` has the kernels in Triton, which needs that; ``plain`` does the same by operations that torch has everywhere.
"""

from thc.torch.device.choice import Choice
from thc.torch.device.codec import DeviceCodec

__all__ = ["Choice", "DeviceCodec"]
