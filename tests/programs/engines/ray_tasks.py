"""Tasks and actors of known memory on a local Ray: says as JSON what each saw of itself."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import ray

MIB = 1 << 20
PAGE = 4096


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@ray.remote
def hold(mib: int) -> int:
    held = bytearray(mib * MIB)
    held[::PAGE] = b"x" * len(held[::PAGE])
    return resident()


@ray.remote
def fails() -> None:
    raise KeyError("on purpose")


@ray.remote
def values(number: int):
    for value in range(number):  # noqa: UP028 - Ray sends values into it, which a range does not take
        yield value


@ray.remote
class Store:
    def __init__(self, mib: int) -> None:
        self.kept = bytearray(mib * MIB)
        self.kept[::PAGE] = b"x" * len(self.kept[::PAGE])

    def size(self) -> int:
        return resident()


@ray.remote
class Together:
    def __init__(self) -> None:
        self.inside = 0
        self.both = asyncio.Event()

    async def hold(self, mib: int) -> int:
        held = bytearray(mib * MIB)
        held[::PAGE] = b"x" * len(held[::PAGE])
        self.inside += 1
        if self.inside == 2:
            self.both.set()
        await self.both.wait()
        return resident()


def main() -> None:
    hook = {"worker_process_setup_hook": "otel_memwatch.plugins.ray.setup"}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env=hook, log_to_driver="quiet" not in sys.argv)
    seen = {"hold": ray.get(hold.remote(200))}
    store = Store.remote(100)
    seen["Store.size"] = ray.get(store.size.remote())
    together = Together.remote()
    ray.get([together.hold.remote(50), together.hold.remote(80)])
    assert [ray.get(value) for value in values.options(num_returns="streaming").remote(3)] == [0, 1, 2]
    try:
        ray.get(fails.remote())
    except KeyError as error:
        seen["error"] = str(error)[-80:]
    ray.shutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
