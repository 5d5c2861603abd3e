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
# A loop that is left open may be collected after its sockets, and then says so: only the generator is left.
loop = asyncio.new_event_loop()
loop.run_until_complete(agenerator.__anext__())
loop.close()
