"""Operations in threads, tasks and executors, with and without the context of an outer one."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

from otel_memwatch import operation


def inner(name):
    with operation(name):
        pass


async def task(name):
    inner(name)
    await asyncio.to_thread(inner, name + " in thread")


async def main():
    with operation("around tasks"):
        await asyncio.gather(task("task 1"), task("task 2"))


with operation("outer"):
    thread = threading.Thread(target=inner, args=("bare thread",))
    thread.start()
    thread.join()
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(inner, "thread with context"))
    thread.start()
    thread.join()
    asyncio.run(main())
    with ThreadPoolExecutor(1) as pool:
        pool.submit(inner, "executor").result()
