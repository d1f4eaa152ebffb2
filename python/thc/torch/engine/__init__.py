"""The engine: what averages buckets in steps that all ranks have alike."""
