"""Both implementations of repeated samples keep one contract: `take_plainly` is its specification, `_repeated.c` does the same."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.monitor.sampling import repeated
from otel_memwatch.monitor.sampling.repeated import WatchedFile
from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.runtime.threads import Alarm

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.repeated import RepeatedTimes

INTERVAL = 0.03
TEXT = b",1,null,2.5]\n"


@pytest.fixture(params=["plain", "compiled"])
def take(request: pytest.FixtureRequest) -> Callable[..., RepeatedTimes]:
    if request.param == "plain":
        return repeated.take_plainly
    if repeated.take_compiled is repeated.take_plainly:
        assert "CI" not in os.environ, "it is not compiled"
        pytest.skip("not compiled")
    return repeated.take_compiled


class Samples:
    """Samples of one file."""

    def __init__(self, take: Callable[..., RepeatedTimes], directory: Path) -> None:
        self.take = take
        self.record, self.watched = directory / "samples", directory / "watched"
        self.watched.write_bytes(b"first 1\nsecond 22\nlast 333\n")
        self.output = os.open(self.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.file = os.open(self.watched, os.O_RDONLY)
        self.alarm = Alarm()

    def __call__(
        self,
        *files: WatchedFile,
        seconds: float = 1.0,
        most: int = 5,
        interval: float = INTERVAL,
        output: int | None = None,
        longest: float = 1.0,
        first: float = INTERVAL,
        text: bytes = TEXT,
    ) -> RepeatedTimes:
        begun = time.monotonic()
        out = self.output if output is None else output
        return self.take(
            begun + first, interval, begun + seconds, longest, self.alarm.descriptor, out, text, files, most
        )

    def until_enough(self, *files: WatchedFile, enough: int, **options: Any) -> RepeatedTimes:
        """Call it until so many samples were taken: on a busy machine a deadline may be missed."""
        for _ in range(20):
            before = len(self.lines())
            result = self(*files, most=enough, **options)
            assert len(self.lines()) == before + len(result[0])
            if len(result[0]) == enough:
                break
        return result

    def lines(self) -> list[bytes]:
        return self.record.read_bytes().splitlines(keepends=True)

    def whole(self) -> WatchedFile:
        return WatchedFile(self.file, (self.watched.read_bytes(),))


@pytest.fixture
def samples(take: Callable[..., RepeatedTimes], tmp_path: Path) -> Samples:
    return Samples(take, tmp_path)


def test_each_sample_is_a_line_with_its_time(samples: Samples) -> None:
    times, deadline, reading, contents, unwritten = samples.until_enough(samples.whole(), enough=20)
    assert len(times) == 20
    assert (contents, unwritten) == ([None], b"")
    assert 0 < reading < 1.0
    assert samples.lines()[-20:] == [f"[{round(at, TICK_DECIMALS)}".encode() + TEXT for at in times]
    late = [at - (deadline - (20 - number) * INTERVAL) for number, at in enumerate(times)]
    assert -1e-6 < min(late) <= max(late) < INTERVAL


def test_it_ends_before_a_sample_at_which_a_file_differs(samples: Samples) -> None:
    file = samples.whole()
    written: list[float] = []

    def write() -> None:
        samples.watched.write_bytes(b"other")
        written.append(time.monotonic())

    threading.Timer(3.5 * INTERVAL, write).start()
    times, *_ = samples(file, most=100, seconds=10.0)
    while not written:
        time.sleep(INTERVAL)
    assert all(at < written[0] for at in times)
    assert len(samples.lines()) == len(times)
    samples.watched.write_bytes(file.parts[0] + b"longer")
    assert samples(file)[0] == []


def test_a_closed_or_large_file_never_counts_as_unchanged(samples: Samples) -> None:
    samples.watched.write_bytes(b"x" * repeated.LARGEST_FILE)
    assert samples(samples.whole())[0] == []
    assert samples(WatchedFile(10_000, (b"",)))[0] == []
    assert samples(WatchedFile(10_000, (b"x",), whole=False))[0] == []


@pytest.mark.parametrize(
    ("parts", "number"),
    [
        ((b"\nsecond 22\n",), 2),
        ((b"first 1\n", b"\nsecond 22\n", b"\nlast 333\n"), 2),
        ((b" 333\n",), 2),
        ((b"\nlast 333\n", b"first 1\n"), 0),
        ((b"\nsecond 2\n",), 0),
    ],
)
def test_parts_of_a_file_have_to_stay_in_their_order(
    samples: Samples, parts: tuple[bytes, ...], number: int
) -> None:
    times, _, _, contents, _ = samples.until_enough(
        WatchedFile(samples.file, parts, whole=False), enough=number or 1
    )
    assert len(times) == number
    assert contents == [samples.watched.read_bytes()]


def test_a_file_is_read_from_its_time_on_and_no_more_often_than_stated(samples: Samples) -> None:
    later = time.monotonic() + 3.5 * INTERVAL
    file = WatchedFile(samples.file, (b"missing",), whole=False, next=later)
    times, *_ = samples(file, most=100)
    assert all(at < later for at in times)
    assert samples(WatchedFile(samples.file, (b"missing",), False, later + 60))[3] == [None]
    once = WatchedFile(samples.file, (b"first",), False, 0.0, 60.0)
    threading.Timer(0.4, samples.watched.write_bytes, (b"other",)).start()
    assert len(samples(once, interval=0.8, first=0.0, seconds=1.5)[0]) == 2


def test_it_ends_at_the_alarm_at_the_given_time_and_if_a_deadline_was_missed(samples: Samples) -> None:
    threading.Timer(0.05, samples.alarm.ring).start()
    begun = time.monotonic()
    assert samples(samples.whole(), interval=5.0, seconds=10.0, first=5.0)[0] == []
    assert time.monotonic() - begun < 2.0
    assert samples(samples.whole())[0] == []
    samples.alarm.silence()
    samples.alarm.silence()
    assert len(samples(samples.whole(), seconds=3.5 * INTERVAL, most=100)[0]) <= 3
    assert samples(samples.whole(), first=-2 * INTERVAL)[0] == []
    assert samples(samples.whole(), longest=-1.0)[0] == []


def test_what_a_full_disk_did_not_take_is_returned(samples: Samples) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    times, _, _, _, unwritten = samples(samples.whole(), output=full, interval=5.0)
    assert len(times) == 1
    assert unwritten == f"[{round(times[0], TICK_DECIMALS)}".encode() + TEXT
    assert json.loads(unwritten)[1:] == [1, None, 2.5]


def test_of_a_partial_write_the_rest_is_returned(samples: Samples) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    text = b"," + b"1" * 20_000 + b"]\n"
    times, _, _, _, unwritten = samples(
        samples.whole(), output=writer, most=100, text=text, first=0.0, interval=0.3, seconds=5.0
    )
    os.close(writer)
    with open(reader, "rb") as file:
        lines = (file.read() + unwritten).splitlines(keepends=True)
    assert 0 < len(unwritten) < len(text)
    assert lines == [f"[{round(at, TICK_DECIMALS)}".encode() + text for at in times]
