"""Operations in finalizers, signal handlers, generators and threads, all at once."""

from __future__ import annotations

import gc
import signal
import threading
import time

from otel_memwatch import operation

gc.set_threshold(5)


class Final:
    def __init__(self):
        self.me = self

    def __del__(self):
        with operation("final"):
            pass


@operation("generator")
def values():
    me = yield
    yield


def interrupt(number, frame):
    with operation("signal"):
        pass


def work():
    for n in range(300):
        with operation("outer"):
            Final()
            if n % 3 == 0:
                time.sleep(0.0001)
            given_up = values()
            next(given_up)
            given_up.send([given_up])
            with operation("inner", n=n):
                Final()


signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
work()
for thread in threads:
    thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
del thread, threads
gc.collect()
