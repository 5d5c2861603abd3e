"""`msgspec` and `json` give the same lines, whatever the file contains."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.record import operation_line
from otel_memwatch.record.follower import OperationFollower
from otel_memwatch.record.operation_line import FIELDS, OperationLine, decode
from otel_memwatch.record.operation_writer import closing_line, closing_more, opening_line, opening_more
from otel_memwatch.run import operation_aggregator, peak_holders
from otel_memwatch.run.operation_aggregator import OperationAggregator
from tests.support.mutations import mutated, profile

MIB = 1 << 20
GPU = {
    "allocator": "jax", "certainty": "interval", "peak": 5 * MIB, "low": 5 * MIB, "high": None, "reserved_peak": None,
    "start": 1, "end": 2, "ooms": None, "retries": None, "fragmentation": 0,
}  # fmt: skip
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
        more=closing_more({"GPU-1": GPU} if odd > 0.98 else None, {"b": 2} if odd > 0.97 else None),
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


@contextlib.contextmanager
def decoder(*, typed: bool) -> Iterator[None]:
    """Lines are decoded with `msgspec`, or with `json`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operation_line, "_typed", operation_line._typed_decoder() if typed else None)
        patch.setattr(operation_line, "_imported", True)
        yield


def read(data: bytes, cuts: list[int], *, typed: bool) -> dict[str, Any]:
    """All that is known after a monitor has followed the file, which grew from one of the `cuts` to the next."""
    with TemporaryDirectory() as folder, decoder(typed=typed):
        path = Path(folder, "operations-7.jsonl")
        followed, so_far = OperationFollower(folder), OperationAggregator()
        opened = 0
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            with path.open("ab") as file:
                file.write(data[begin:end])
            while True:
                found = followed.poll(on_close=so_far.close)
                opened += found.opened
                if not found.behind:
                    break
            (lines,) = followed.lines()
            last = lines.last_time or 0.0
            so_far.look_at([5.001, last - 0.003, last], 0.002, lines.still_open())
        followed.poll(last=True, on_close=so_far.close)
        (lines,) = followed.lines()
        candidates = so_far.candidates([])
        found_by = {
            "opened": opened,
            "damaged": followed.damage(),
            "process": (lines.pid, lines.largest, lines.last_time, lines.still_open()),
            "closed": (so_far.closed, so_far.to_export, so_far.unnamed),
            "totals": so_far.totals(),
            "largest of a name": [row.operation() for row in so_far.largest_of_names()],
            "all": [candidates.operation(one.position) for one in candidates.open_between(0, 1e9)],
        }
        followed.close()
        return found_by


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LIMIT": 5, "_NAMES": 20, "_HOLDERS": 3}.items():
        monkeypatch.setattr(operation_aggregator, name, value)
    monkeypatch.setattr(peak_holders, "RECENT", 50)


@pytest.mark.parametrize("seed", range(12))
def test_both_decoders_give_the_same_operations(seed: int) -> None:
    data = journal(seed, 900)
    choose = random.Random(seed)
    cuts = sorted(choose.randrange(len(data)) for _ in range(4))
    plainly = read(data, cuts, typed=False)
    assert plainly["closed"][0] > 600
    assert read(data, cuts, typed=True) == plainly


def test_valid_lines_are_decoded_by_msgspec() -> None:
    """Otherwise the test above compares nothing."""
    typed = operation_line._typed_decoder()
    assert typed is not None
    valid = [line for line in journal(0, 20).split(b"\n") if line]
    lines = typed(b"[" + b",".join(valid) + b"]")
    assert lines is not None
    assert len(lines) == len(valid)


@functools.cache
def _small() -> bytes:
    return journal(1, 40)


@profile(150)
@given(mutated(_small(), 6), st.integers(0, 20_000))
def test_damaged_lines_too(data: bytes, cut: int) -> None:
    cuts = [min(cut, len(data))]
    assert read(data, cuts, typed=True) == read(data, cuts, typed=False)


NUMBERS = st.sampled_from(
    [
        0,
        -1,
        5.0,
        1e300,
        2**63 - 1,
        2**63,
        2**64,
        10**400,
        True,
        None,
        "x",
        "",
        [1],
        {"a": 2**70},
        2.0**33,
        1e12,
    ]
)


@profile(300)
@given(st.dictionaries(st.sampled_from([*FIELDS, "other"]), NUMBERS, max_size=6))
def test_a_field_has_its_type_or_is_unknown(value: dict[str, Any]) -> None:
    text = json.dumps(value).encode()
    found = []
    for typed in (True, False):
        with decoder(typed=typed):
            (line,) = decode([text])
        assert line is not None
        found.append({field: getattr(line, field) for field in FIELDS if field not in ("offset", "boundary")})
    assert repr(found[0]) == repr(found[1])


def test_only_large_files_import_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_line, "_typed", None)
    monkeypatch.setattr(operation_line, "_imported", False)
    assert type(decode([b"{}"], operation_line._LONG)[0]) is OperationLine
    assert type(decode([b"{}"], operation_line._LONG + 1)[0]) is not OperationLine


def test_without_msgspec_all_files_are_read_with_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setattr(operation_line, "_typed", None)
    monkeypatch.setattr(operation_line, "_imported", False)
    (line,) = decode([b'{"open": 5, "time": 1.5}'], operation_line._LONG + 1)
    assert type(line) is OperationLine
    assert (line.open, line.time, line.name) == (5, 1.5, None)
