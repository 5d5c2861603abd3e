"""Writes one run while it goes on: samples, processes, operations, `run.json`."""
