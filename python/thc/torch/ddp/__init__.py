"""The adapter for ``DistributedDataParallel``."""
