"""One thread's operation stays open while another one's begin and end."""

from __future__ import annotations

import threading

from marking import blip, touch

from otel_memwatch import operation

first_in, second_out = threading.Event(), threading.Event()


def long_one():
    with operation("long"):
        first_in.set()
        second_out.wait()


thread = threading.Thread(target=long_one)
thread.start()
first_in.wait()
with operation("early"):
    blip(100)
with operation("overlapping"):
    kept = touch(40)
    second_out.set()
    thread.join()
    blip(60)
with operation("late"):
    pass
