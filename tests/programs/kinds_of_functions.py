"""Every kind of function as an operation, each of which checks that it still is what it was."""

from __future__ import annotations

import asyncio
import functools
import inspect

from otel_memwatch import operation


@operation("plain", kind="function")
def plain(a, b=2):
    "Doc."
    return a + b


assert plain(1) == 3 and plain.__name__ == "plain" and plain.__doc__ == "Doc."
assert str(inspect.signature(plain)) == "(a, b=2)"


@operation
def named_after_itself():
    return 1


assert named_after_itself() == 1


@operation("coroutine")
async def coroutine(x):
    await asyncio.sleep(0)
    with operation("in coroutine"):
        pass
    return x


assert inspect.iscoroutinefunction(coroutine)
assert asyncio.run(coroutine(5)) == 5


@operation("generator")
def generator():
    with operation("in generator"):
        got = yield 1
    try:
        yield got
    except KeyError:
        yield "caught"
    return "end"


assert inspect.isgeneratorfunction(generator)
steps = generator()
assert next(steps) == 1
with operation("beside generator"):
    pass
assert steps.send("sent") == "sent" and steps.throw(KeyError()) == "caught"
try:
    next(steps)
except StopIteration as stop:
    assert stop.value == "end"
else:
    raise AssertionError


@operation("async generator")
async def agenerator():
    try:
        got = yield 1
        with operation("in async generator"):
            pass
        yield got
    except KeyError:
        yield "caught"


assert inspect.isasyncgenfunction(agenerator)


async def main():
    steps = agenerator()
    assert await steps.__anext__() == 1
    with operation("beside async generator"):
        pass
    assert await steps.asend("sent") == "sent"
    assert await steps.athrow(KeyError()) == "caught"
    assert [x async for x in steps] == []


asyncio.run(main())


class Worker:
    @operation("method")
    def method(self):
        return self

    @staticmethod
    @operation("static")
    def static():
        return 1

    @operation("class method")
    @classmethod
    def klass(cls):
        return cls


worker = Worker()
assert worker.method() is worker and Worker.static() == 1 and Worker.klass() is Worker


async def free():
    return 7


assert asyncio.run(operation("partial")(functools.partial(free))()) == 7
