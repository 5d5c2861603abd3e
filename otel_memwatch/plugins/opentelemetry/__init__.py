"""The metrics as an instrumentation of a program that runs without a monitor: its sampler runs in the program."""
