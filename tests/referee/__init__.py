"""Real programs against a referee that is not ours: whether a run's memory figure is true, and how near it is.

`python -m tests.referee` runs every program of `programs.py` as root, as an unprivileged user, and contained (read-only
control groups, a PID namespace), and prints one line for each and the shares within 5 % and 20 %. It needs root and
control groups of version 1, or of version 2 in a delegated service. Missing programs are named in the output.

`sampler.c` reads the cgroup of a program 1000 times a second, `trial.py` runs and judges one program.
"""
