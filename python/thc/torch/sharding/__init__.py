"""Models that FSDP2 has sharded, and their replicas."""
