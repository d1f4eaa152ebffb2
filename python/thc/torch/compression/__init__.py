"""How buckets are compressed and travel, and how their means come back."""
