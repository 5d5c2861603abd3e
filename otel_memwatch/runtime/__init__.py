"""Foundations on top of Python and the kernel: lazy names, threads under a memory limit, polling, masking."""
