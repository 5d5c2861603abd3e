"""One operation entered within itself, in several threads and recursively, and one closed elsewhere and twice."""

from __future__ import annotations

import threading

from otel_memwatch import operation

again = operation("again")
with again:
    with again:
        with operation("innermost"):
            pass
    with operation("after inner"):
        pass


def use():
    for _ in range(50):
        with again:
            pass


threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()


@operation("recursive")
def down(n):
    return n and down(n - 1)


down(50)
elsewhere = operation("closed elsewhere")
elsewhere.__enter__()
thread = threading.Thread(target=elsewhere.__exit__, args=(None, None, None))
thread.start()
thread.join()
with operation("afterwards"):
    pass
elsewhere.__exit__(None, None, None)
