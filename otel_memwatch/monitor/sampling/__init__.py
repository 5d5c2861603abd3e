"""Reads the machine at every sample: the clock, early samples, the sources."""
