"""Pairs that are found in blocks say the same as their lines one by one, whatever else stands between them."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.record import follower
from otel_memwatch.record.follower import OperationFollower
from otel_memwatch.record.operation_writer import closing_line, closing_more, opening_line, opening_more
from otel_memwatch.record.plain_pairs import PlainPairs, pieces
from otel_memwatch.run import operation_digest
from otel_memwatch.run.operation_digest import OperationAggregator
from tests.support.mutations import mutated, profile

MIB = 1 << 20
NAMES = ("x", "step 1", "step 2", "step 30", "a'b", 'a"b', "ä", "\\", "", "{}", "x" * 600)


def opening(choose: random.Random, number: int, time: float, name: str) -> bytes:
    odd = choose.random()
    return opening_line(
        number=number,
        time=time,
        name=name,
        trace="1" * 32,
        span=f"{number:016x}",
        parent=None if choose.random() < 0.5 else "2" * 16,
        thread=None if odd < 0.02 else 7,
        rss=None if odd < 0.02 else 10 * MIB,
        segment=None if odd < 0.02 else choose.choice([9, 10, 10, 11]) * MIB,
        more=opening_more({"a": 1} if odd > 0.97 else None, exported=odd > 0.95),
    )


def closing(choose: random.Random, number: int, time: float) -> bytes:
    odd = choose.random()
    low = choose.choice([100, 100, 100, 99, 101]) * MIB
    return closing_line(
        number=number,
        time=time,
        error=None if odd < 0.9 else 'ValueError("x")' if odd < 0.95 else "ValueError",
        rss=10 * MIB,
        segment=choose.choice([10, 10, 11, 12]) * MIB,
        peak=(low + 5, low, low + choose.choice([2, 300]) * MIB, "exact") if odd > 0.03 else (None, None, None, "sampled"),
        used=(choose.choice([0.0, 0.000004, 0.1]), choose.random() / 1000, 1, 0) if odd > 0.02 else None,
        moved=(1, 2, 3, 4) if odd > 0.01 else None,
        more=closing_more({"GPU-1": {"peak": 5 * MIB}} if odd > 0.98 else None, {"b": 2} if odd > 0.97 else None),
    )  # fmt: skip


def journal(seed: int, number: int) -> bytes:
    """A program that marks mostly plain operations: nested ones, some that overlap, foreign lines, numbers that come again."""
    choose = random.Random(seed)
    written = [b'{"schema":1,"pid":7,"start":1.0,"program":"p","exact":true,"floor":null}\n']
    time, open_now = 5.0, []
    for identity in range(1, number):
        time += choose.random() / 1000
        names = NAMES if choose.random() < 0.1 else NAMES[:3]
        name = f"item-{identity}-{choose.random()}" if seed % 4 == 3 else choose.choice(names)
        again = identity if choose.random() < 0.98 or not open_now else choose.choice(open_now)
        written.append(opening(choose, again, time, name))
        open_now.append(again)
        while open_now and choose.random() < (0.9 if len(open_now) < 4 else 1):
            if choose.random() < 0.01:
                written.append(
                    choose.choice([b"\n", b"foreign\n", b"[1]\n", b'{"close":9}\n', b"\xff\n", b"{}\r\n"])
                )
            time += choose.choice([0.000004, 0.000005, choose.random() / 1000])
            written.append(closing(choose, open_now.pop(choose.choice([-1, -1, 0])), time))
    return b"".join(written)


def read(data: bytes, cuts: list[int], *, together: bool) -> dict[str, Any]:
    """All that is known after a monitor has followed the file, which grew from one of the `cuts` to the next."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "operations-7.jsonl")
        followed, so_far = OperationFollower(folder), OperationAggregator()
        opened = 0
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            with path.open("ab") as file:
                file.write(data[begin:end])
            while True:
                pairs = so_far.close_pairs if together and so_far.too_many else None
                found = followed.poll(on_close=so_far.close_lines, on_pairs=pairs)
                opened += found.opened
                if not found.behind:
                    break
            (lines,) = followed.lines()
            last = lines.last_time or 0.0
            so_far.look_at([5.001, last - 0.003, last], 0.002, lines.still_open())
        followed.poll(
            last=True, on_close=so_far.close_lines, on_pairs=so_far.close_pairs if together else None
        )
        (lines,) = followed.lines()
        found_by = {
            "opened": opened,
            "damaged": followed.damaged,
            "process": (lines.pid, lines.largest, lines.last_time, lines.still_open()),
            "closed": (so_far.closed, so_far.to_export, so_far._unnamed),
            "totals": {name: known.totals(name) for name, known in so_far._names.items()},
            "largest of a name": {name: known.largest for name, known in so_far._names.items()},
            "largest": sorted(so_far._largest),
            "holders": {pid: holders.names for pid, holders in so_far._holders.items()},
            "kept": so_far._kept(),
            "all": so_far.sized([]).open_between(0, 1e9),
        }
        followed.close()
        return found_by


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LIMIT": 5, "_LARGEST": 4, "_RECENT": 50, "_NAMES": 20, "_HOLDERS": 3}.items():
        monkeypatch.setattr(operation_digest, name, value)
    monkeypatch.setattr(follower, "_SINGLY", 0)


@pytest.mark.parametrize("seed", range(12))
def test_pairs_say_what_their_lines_say(seed: int) -> None:
    data = journal(seed, 900)
    choose = random.Random(seed)
    cuts = sorted(choose.randrange(len(data)) for _ in range(4))
    plainly = read(data, cuts, together=False)
    assert plainly["closed"][0] > 600
    assert read(data, cuts, together=True) == plainly


def test_most_are_found_in_pairs() -> None:
    """Else the test above would compare nothing; what is behind the first odd line is found too."""
    found = list(pieces(journal(0, 900)[: -(10 * 1024)].rpartition(b"\n")[0].replace(b"\xff", b"?") + b"\n"))
    pairs = sum(len(piece.lines) for piece in found if isinstance(piece, PlainPairs))
    assert pairs > 300
    assert len(found) > 20


@functools.cache
def _small() -> bytes:
    return journal(1, 40)


@profile(150)
@given(mutated(_small(), 6), st.integers(0, 20_000))
def test_damaged_ones_too(data: bytes, cut: int) -> None:
    cuts = [min(cut, len(data))]
    assert read(data, cuts, together=True) == read(data, cuts, together=False)
