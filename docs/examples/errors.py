"""Errors: catch `MemwatchError` and show its message."""

from otel_memwatch import MemwatchError, load_run

try:
    load_run("no/such/run")
except MemwatchError as error:
    print(error)
