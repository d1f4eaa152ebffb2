"""The adapters that take an optimizer's step: a model backup, and an outer loop."""
