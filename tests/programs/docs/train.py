"""Stands for a training: 30 MiB in an operation."""

from otel_memwatch import operation

with operation("Train"):
    weights = bytearray(30 << 20)
