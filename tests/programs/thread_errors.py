"""Threads and finalizers that fail, and what is kept of it."""

from __future__ import annotations

import threading

from otel_memwatch.runtime.threads import ThreadErrors


class Rest:
    def __del__(self):
        raise ValueError("nobody catches that")


def fail():
    raise MemoryError


errors = ThreadErrors()
errors.keep()
for _ in range(20):
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
Rest()
print(errors.sentences())
