"""What must show of per-layer compression: ratios, choices over time, sensitivity, thresholds."""
