"""Acts on the run while it goes on: memory limits."""
