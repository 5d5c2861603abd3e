"""Stacks of the process that grows, at each new peak (`--stacks`), in a process of our own.

`worker` is the process: it polls with `growth` and captures with one of `means`. No sample waits for it.
"""
