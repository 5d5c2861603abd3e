"""Tasks of known memory on a Dask cluster: says as JSON what each saw of itself, and what the scheduler knows of them.

Arguments: threads of the worker; "preloaded" where nothing is to be installed here.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from distributed import Client, LocalCluster

from otel_memwatch.plugins import dask as memory

MIB = 1 << 20
PAGE = 4096
together = threading.Barrier(3, timeout=60)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def hold(mib: int) -> int:
    """Takes that much memory, and gives what the process has then."""
    held = bytearray(mib * MIB)
    held[::PAGE] = b"x" * len(held[::PAGE])
    return resident()


def hold_together(mib: int) -> int:
    """Takes it, and waits until the two others of its kind have theirs: all are in this process."""
    held = bytearray(mib * MIB)
    held[::PAGE] = b"x" * len(held[::PAGE])
    sys.modules["__main__"].together.wait()
    return mib


def fails() -> None:
    raise KeyError("on purpose")


def main() -> None:
    threads = int(sys.argv[1])
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=threads, processes=threads == 1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        if "preloaded" not in sys.argv:
            memory.install(client)
        if threads == 1:
            seen = {
                f"hold{mib}": client.submit(hold, mib, key=f"hold{mib}-1").result() for mib in (50, 200, 100)
            }
            client.gather(client.map(abs, range(-100, 0)))
            client.submit(fails).exception()
        else:
            held = [client.submit(hold_together, mib, key=f"beside{mib}-1") for mib in (50, 100, 150)]
            seen = {f"beside{mib}": 0 for mib in client.gather(held)}
        groups = {name: [*group, group.exact] for name, group in memory.tasks(client).items()}
    print(json.dumps({"seen": seen, "groups": groups}))


if __name__ == "__main__":
    main()
