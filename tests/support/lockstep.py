"""A program whose threads and child do one thing after the other, so it knows its memory at each moment.

`python -m tests.support.lockstep STEPS`, with STEPS a JSON list of [actor, action, argument]. Actors are threads by number,
and "child", a forked process. Actions: "open" NAME and "close" (operations, threads only), "a" MIB (map and touch), "f" (unmap
the newest of the actor), "s" MILLISECONDS. Prints the resident size before the first step, in bytes.
"""

from __future__ import annotations

import json
import mmap
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from otel_memwatch import operation

FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000  # MAP_POPULATE: touched at once


class Actor:
    """Runs the steps that it receives."""

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []
        self._open: list[Any] = []

    def act(self, action: str, argument: Any) -> None:
        if action == "open":
            self._open.append(operation(argument))
            self._open[-1].__enter__()
        elif action == "close":
            self._open.pop().__exit__(None, None, None)
        elif action == "a":
            self._maps.append(mmap.mmap(-1, argument << 20, flags=FLAGS))
        elif action == "f":
            self._maps.pop().close()
        elif action == "s":
            time.sleep(argument / 1000)


def thread() -> Callable[[str, Any], None]:
    """Starts an actor in a thread; gives the function that sends it a step and waits until it is done."""
    told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    def work() -> None:
        actor = Actor()
        while True:
            actor.act(*told.get())
            done.put(None)

    threading.Thread(target=work, daemon=True).start()

    def tell(action: str, argument: Any) -> None:
        told.put((action, argument))
        done.get()

    return tell


def child() -> Callable[[str, Any], None]:
    """The same in a forked process."""
    told, done = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(told[1])
        actor = Actor()
        with open(told[0]) as lines:
            for line in lines:
                actor.act(*json.loads(line))
                os.write(done[1], b".")
        os._exit(0)
    os.close(told[0])

    def tell(action: str, argument: Any) -> None:
        os.write(told[1], json.dumps([action, argument]).encode() + b"\n")
        os.read(done[0], 1)

    return tell


def main() -> None:
    """Command line."""
    steps = json.loads(sys.argv[1])
    actors: dict[Any, Callable[[str, Any], None]] = {}
    if any(actor == "child" for actor, _, _ in steps):
        actors["child"] = child()
    with operation("warm up"):
        pass
    for actor, _, _ in steps:
        if actor not in actors:
            actors[actor] = thread()
    with open("/proc/self/statm") as file:
        print(int(file.read().split()[1]) * mmap.PAGESIZE, flush=True)
    for actor, action, argument in steps:
        actors[actor](action, argument)


if __name__ == "__main__":
    main()
