"""Random programs of many kinds of memory use against a referee: whether what a run claims is true, and how near it is.

`python -m tests.zoo 1000` runs as many compositions (root, on a machine with control groups of version 1) and prints the
table. `kinds.c` uses memory, `compositions.py` draws programs of it, `trial.py` runs and judges one, `tables.py` tells.
"""
