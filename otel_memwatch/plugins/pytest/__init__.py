"""`pytest --memwatch`: the exact memory peak of every test.

`options` is all that pytest loads without `--memwatch`. With it:

- `measuring` makes each test's set-up, call and tear-down an operation, in the process that runs the test;
- `recording` has a monitor beside that process, which knows its children;
- `limits` judges a test by its mark where it ends;
- `session` gathers the figures of all processes, and `summary` words them;
- `aftermath` names the test that was running when pytest itself was killed.
"""
