"""A watermark that another program resets: noticed, and our own resets are not taken for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_memwatch.model import ProcessNote, ProcessRecord
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.process_tree import ProcessTree
from otel_memwatch.runtime.procfs.process import parse_watermark
from otel_memwatch.runtime.procfs.statm import parse_resident

MIB = 1 << 20
GUARD = 60.0
ROOT = Path(__file__).parents[6]
PROGRAM = ROOT / "tests/programs/process_tree/hold_on_command.py"
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="the kernel cannot reset watermarks"
)


class Watched:
    """A process that holds and drops memory on command, as one tree sees it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()
        self.records: list[ProcessRecord] = []
        self.marks = self.announced = False
        context = Context(self.process.pid, 0.1)._replace(
            on_process=self.records.append,
            marks_operations=lambda _pid: self.marks,
            resets_itself=lambda _pid: self.announced,
        )
        self.tree = ProcessTree(context)
        self.tick()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline()

    def do(self, word: str, size: int = 0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word} {size}\n")
        self.process.stdin.flush()
        self._answer()

    def reset(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def tick(self, after: float = 0.0) -> None:
        """A tick, `after` seconds later than it is: what is noticed is recorded when the process had time to say why."""
        self.tree.read(time.monotonic() + after)

    @property
    def noticed(self) -> int:
        return sum(record.note == ProcessNote.WATERMARK_RESET for record in self.records)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=GUARD)
        self.tree.finish(time.monotonic())


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.close()


@pytest.mark.parametrize("path", ["", "task/{pid}/"])
def test_a_reset_between_two_ticks_is_noticed_once(watched: Watched, path: str) -> None:
    """Nothing was read between the memory that it hides and the reset."""
    watched.do("blip", 60)
    pid = watched.process.pid
    Path(f"/proc/{pid}/{path.format(pid=pid)}clear_refs").write_text("5")
    watched.do("blip", 10)
    watched.tick()
    watched.tick(after=2)
    assert watched.noticed == 1
    watched.reset()
    watched.tick(after=4)
    assert watched.noticed == 1


def test_a_process_that_begins_to_mark_operations_resets_before_it_says_so(watched: Watched) -> None:
    watched.reset()
    watched.tick()
    watched.marks = True
    watched.tick(after=2)
    watched.tick(after=4)
    assert not watched.noticed


def test_a_process_that_has_announced_its_resets_is_no_longer_watched(watched: Watched) -> None:
    """Each event would cost it time. Without the kernel's events, nothing else notices these resets."""

    def watches() -> int:
        found = Path("/proc/self/fdinfo").iterdir()
        return sum(file.read_text().count("inotify wd:") for file in found if file.exists())

    before = watches()
    watched.reset()
    watched.tick()
    watched.marks = True
    watched.tick(after=2)
    assert watches() == before > 0, "the header of its operations may say that it resets nothing"
    watched.announced = True
    watched.reset()
    watched.tick(after=3)
    assert watches() == before - 2
    watched.reset()
    watched.tick(after=4)
    watched.tick(after=6)
    assert not watched.noticed


def test_the_monitor_resets_no_process(watched: Watched) -> None:
    for _ in range(3):
        watched.do("blip", 60)
        watched.tick()
    watched.tick(after=2)
    assert not watched.noticed
    assert (parse_watermark(Path(f"/proc/{watched.process.pid}/status").read_bytes()) or 0) >= 59 * MIB


def test_a_watermark_that_falls_is_noticed_without_the_kernels_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("otel_memwatch.monitor.sampling.sources.process_tree.resets._IN_MODIFY", 0)
    watched = Watched()
    try:
        watched.do("hold", 60)
        watched.tick()
        watched.do("drop")
        watched.reset()
        assert parse_resident(Path(f"/proc/{watched.process.pid}/statm").read_bytes()) < 60 * MIB
        watched.tick()
        watched.tick(after=2)
        assert watched.noticed == 1
    finally:
        watched.close()
