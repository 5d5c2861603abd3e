"""`pytest --memwatch`: exact memory peak of every test.

Without `--memwatch`, pytest loads only `options`. With it:

- `worker` makes each test's set-up, call and tear-down an operation, in the process that runs the test;
- `recording` runs a monitor beside that process, which samples its children;
- `limits` checks a test against its mark when its call ends;
- `session` registers the plugins of each process;
- `controller` collects the figures of all processes, and `summary` formats them;
- `crash_report` names the test that was running when pytest itself was killed.
"""
