"""Compression on the device that has the gradients: only indices and sums cross to the host and back.

``compiled`` has the kernels, which are Triton's.
"""

from thc.torch.device.choice import Choice
from thc.torch.device.codec import DeviceCodec

__all__ = ["Choice", "DeviceCodec"]
