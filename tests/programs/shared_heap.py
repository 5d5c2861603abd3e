"""By how many MiB of address space four threads with objects of their own grow a limited program."""

from __future__ import annotations

import resource
import threading

from otel_memwatch.runtime.threads import Thread, keep_to_one_heap

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, -1))
keep_to_one_heap()
stop = threading.Event()


def work():
    kept.append([bytes(600 + i) for i in range(1000)])
    stop.wait()


def size():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()


kept = []
before = size()
threads = [Thread(work, "one") for _ in range(4)]
for thread in threads:
    thread.start()
while len(kept) < 4:
    pass
print((size() - before) >> 20)
stop.set()
