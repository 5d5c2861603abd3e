"""Exceptions of all kinds that leave operations."""

from __future__ import annotations

import asyncio

from otel_memwatch import operation


class Mine(Exception):
    pass


error = Mine("text")


def attempt(name, raised):
    try:
        with operation(name):
            raise raised
    except BaseException as caught:
        assert caught is raised and caught.__context__ is None and caught.__cause__ is None


attempt("own", error)
attempt("interrupt", KeyboardInterrupt())
attempt("exit 0", SystemExit(0))
attempt("exit 3", SystemExit(3))


@operation("generator")
def generator():
    yield 1
    raise error


try:
    list(generator())
except Mine as caught:
    assert caught is error


@operation("given up")
def endless():
    while True:
        yield


steps = endless()
next(steps)
del steps


@operation("cancelled")
async def slow():
    await asyncio.sleep(60)


async def main():
    task = asyncio.ensure_future(slow())
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass


asyncio.run(main())
