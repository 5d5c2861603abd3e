"""Leaves operations open, and begins others, while the interpreter ends."""

from __future__ import annotations

import asyncio
import atexit

from otel_memwatch import operation


@operation("abandoned generator")
def generator():
    with operation("inside"):
        yield


kept = generator()
next(kept)
atexit.register(lambda: operation("at exit").__enter__())


class Late:
    def __del__(self):
        with operation("late"):
            pass


late = Late()


async def agen():
    with operation("in async generator"):
        yield


agenerator = agen()
asyncio.new_event_loop().run_until_complete(agenerator.__anext__())
