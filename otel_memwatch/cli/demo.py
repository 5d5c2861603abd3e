"""`demo`: a small workload to try the recording."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import click

from otel_memwatch.in_target.operations import operation
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.live.seconds import Seconds

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

MIB = 1024 * 1024
_DOUBLES_PER_MIB = MIB // 8


@click.command()
@click.option(
    "--seconds",
    type=Seconds(0.5, 600),
    default=8.0,
    show_default=True,
    help="Approximate duration.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 64),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Memory, as a multiple of 480 MiB.",
)
@click.option("--oom", is_flag=True, help="Allocate memory until a limit kills the process.")
def command(seconds: float, scale: float, *, oom: bool) -> None:
    """Run a small workload to record: load, transform, fork workers, spike, free and write a file.

    Try: otel-memwatch wrap -- otel-memwatch demo
    """
    second = seconds / 8
    if oom:
        _say("allocating until a limit stops it")
        kept = []
        while True:  # grow by 8 MiB every 20 ms
            kept.append(bytearray(os.urandom(1024) * (8 * 1024)))
            time.sleep(0.02)
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="memwatch-demo-") as folder:
        with operation("Load"):
            data = _load(Path(folder, "input.bin"), int(96 * scale), second)
        with operation("Transform"):
            _say("transforming")
            until = time.monotonic() + 2 * second
            result = np.sqrt(data)  # twice the data's memory
            while time.monotonic() < until:
                np.sqrt(np.abs(result - data), out=result)
        with operation("Train", workers=3):
            _say("training in three workers")
            context = multiprocessing.get_context("fork")
            workers = [
                context.Process(target=_work, args=(result, int(40 * scale), second)) for _ in range(3)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        with operation("Evaluate"):
            time.sleep(second / 4)
            with operation("Spike"):
                # Touch the memory and free it at once: samples miss it, the high-water mark does not.
                spike = int(256 * scale)
                _say(f"a spike of {spike} MiB")
                np.ones(spike * _DOUBLES_PER_MIB)
            time.sleep(second / 4)
        del data
        with operation("Export"):
            _say("exporting")
            with Path(folder, "output.bin").open("wb") as file:
                for piece in range(8):
                    file.write(result[piece * result.size // 8 : (piece + 1) * result.size // 8].tobytes())
                    time.sleep(second / 8)
    _say("done")


def _say(text: str) -> None:
    click.echo(f"demo: {text}")


def _load(path: Path, mib: int, second: float) -> Array:
    """Write a file of `mib` MiB and read it back piece by piece."""
    import numpy as np

    _say(f"loading {mib} MiB")
    path.write_bytes(os.urandom(MIB) * mib)
    data = np.empty(mib * _DOUBLES_PER_MIB)
    with path.open("rb") as file:
        for piece in range(8):
            part = data[piece * data.size // 8 : (piece + 1) * data.size // 8]
            part[:] = np.frombuffer(file.read(part.size * 8), dtype=np.uint8).view("<u8") % 1000
            time.sleep(second / 8)
    return data


def _work(shared: Array, mib: int, second: float) -> None:
    import numpy as np

    with operation("Epoch"):
        own = np.ones(mib * _DOUBLES_PER_MIB)
        until = time.monotonic() + 2 * second
        while time.monotonic() < until:
            own[: shared.size // 8] += float(shared[: own.size].mean())
            time.sleep(second / 50)
