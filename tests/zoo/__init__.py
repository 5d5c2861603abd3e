"""Random programs of many kinds of memory use against a referee: whether what a run claims is true, and how near it is.

`python -m tests.zoo 1000` runs as many compositions and prints the table: as root where control groups are of version 1, and in
a service with a delegated group where they are of version 2, as in the machine of `tests/vm`. `kinds.c` uses memory,
`compositions.py` draws programs of it, `marked.py` marks operations in half of them (version 1 only), `surroundings.py` makes
the groups, `trial.py` runs and judges one, `tables.py` prints the tables.
"""
