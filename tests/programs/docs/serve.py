"""Stands for a service that ends."""

weights = bytearray(10 << 20)
