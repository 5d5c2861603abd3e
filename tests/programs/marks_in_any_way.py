"""Marks operations in all the ways there are, one after the other: `marks_in_any_way.py STEPS`.

STEPS is a JSON list of [actor, action, argument]; actors are threads, by number (0: the main one). Whatever an action does
is done before the next one begins, so two runs of the same steps mark the same operations in the same order.
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import mmap
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator

from otel_memwatch import mark, operation

FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000  # MAP_POPULATE: touched at once
PAUSE = 0.0003
"""Longer than a reading of the totals is used."""


def touch(mib: int) -> None:
    mmap.mmap(-1, mib << 20, flags=FLAGS).close()


class Marking:
    """Marks an operation when it is collected."""

    def __del__(self) -> None:
        with operation("In finalizer"):
            pass


def handle(*_: object) -> None:
    with operation("In handler", some="attribute"):
        pass


@operation("Generator")
def generator(count: int) -> Iterator[int]:
    for number in range(count):
        with operation("Value"):
            pass
        yield number


@operation("Coroutine")
async def coroutine(name: str, turn: asyncio.Event, following: asyncio.Event) -> None:
    await turn.wait()
    with operation(name):
        following.set()
        await asyncio.sleep(0)


async def tasks(count: int) -> None:
    turns = [asyncio.Event() for _ in range(count + 1)]
    turns[0].set()
    await asyncio.gather(*(coroutine(f"Task {n}", turns[n], turns[n + 1]) for n in range(count)))


def interpret(interpreters: object, source: str) -> None:
    made = interpreters.create()
    interpreters.run_string(made, source)
    interpreters.destroy(made)


class Actor:
    """One thread."""

    def __init__(self) -> None:
        self.open = []

    def act(self, action: str, argument: object) -> None:
        getattr(self, action)(argument)

    def open_one(self, name: str) -> None:
        made = operation(name, number=len(self.open), text="ü") if len(name) % 2 else operation(name)
        self.open.append(made)
        made.__enter__()

    def close_one(self, _: object) -> None:
        if self.open:
            self.open.pop().__exit__(None, None, None)

    def close_other(self, _: object) -> None:
        """Not the innermost one."""
        if self.open:
            self.open.pop(0).__exit__(None, None, None)

    def fail(self, name: str) -> None:
        with contextlib.suppress(ValueError), operation(name) as made:
            made.set(reason="too large")
            raise ValueError(name)

    def touch(self, mib: int) -> None:
        touch(mib)

    def write(self, size: int) -> None:
        time.sleep(PAUSE)
        with operation("Write"), open(os.devnull, "wb", buffering=0) as file:
            file.write(bytes(size))
            time.sleep(PAUSE)

    def mark(self, name: str) -> None:
        mark(name)

    def unmark(self, _: object) -> None:
        mark(None)

    def tasks(self, count: int) -> None:
        asyncio.run(tasks(count))

    def generator(self, count: int) -> None:
        for _ in generator(count):
            with operation("Consumed"):
                pass

    def finalizer(self, _: object) -> None:
        found = Marking()
        del found
        gc.collect()

    def signal(self, _: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)

    def fork(self, unseen: bool) -> None:
        child = ctypes.PyDLL(None).fork() if unseen else os.fork()
        if child == 0:
            with operation("Child"), operation("Below"):
                touch(8)
            mark("Phase of the child")
            mark(None)
            os._exit(0)
        os.waitpid(child, 0)

    def close_descriptors(self, between: list) -> None:
        time.sleep(PAUSE)
        os.closerange(*between)

    def reset(self, _: object) -> None:
        """As another program would."""
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    def interpreter(self, _: object) -> None:
        source = f"import sys\nsys.path[:] = {sys.path!r}\nfrom otel_memwatch import operation\nwith operation('Inside'): pass"
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            return
        interpret(interpreters, source)

    def exec(self, _: object) -> None:
        os.execv(sys.executable, [sys.executable, __file__, json.dumps([[0, "open_one", "After exec"]])])


def thread() -> queue.SimpleQueue:
    steps, done = queue.SimpleQueue(), queue.SimpleQueue()

    def work() -> None:
        actor = Actor()
        while True:
            actor.act(*steps.get())
            done.put(None)

    threading.Thread(target=work, daemon=True).start()

    def act(action: str, argument: object) -> None:
        steps.put((action, argument))
        done.get()

    return act


signal.signal(signal.SIGUSR1, handle)
actors = {0: Actor().act}
for who, what, argument in json.loads(sys.argv[1]):
    if who not in actors:
        actors[who] = thread()
    actors[who](what, argument)
