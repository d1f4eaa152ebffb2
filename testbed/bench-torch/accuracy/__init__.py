"""Whether training through compressed means comes to where exact means take it."""
