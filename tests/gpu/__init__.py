"""The claims about GPUs, on real hardware."""
