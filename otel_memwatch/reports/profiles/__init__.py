"""Captured stacks in formats of other programs, one module each."""
