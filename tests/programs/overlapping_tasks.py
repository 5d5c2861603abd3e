"""Tasks of an event loop whose memory overlaps."""

from __future__ import annotations

import asyncio

from marking import touch

from otel_memwatch import operation


@operation("task")
async def task(size, before, after):
    await before.wait()
    memory = touch(size)
    after.set()
    await asyncio.sleep(0)
    memory.close()


class Unmarked:
    async def __aenter__(self):
        pass

    async def __aexit__(self, *_):
        pass


async def main():
    events = [asyncio.Event() for _ in range(4)]
    async with Unmarked():
        events[0].set()
        with operation("all"):
            await asyncio.gather(*(task(20 * (n + 1), events[n], events[n + 1]) for n in range(3)))


asyncio.run(main())
