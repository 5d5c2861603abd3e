"""When PyTorch's allocator is worth a snapshot, at scripted times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_memwatch.in_target.torch_snapshot import snapshots
from otel_memwatch.in_target.torch_snapshot.snapshots import LONGEST_RISE, SETTLED, Snapshots
from tests.support.standin_torch import Torch

MIB = 1 << 20


class Clock:
    """Time that passes only when asked."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(snapshots, "time", made)
    return made


def checked(followed: Snapshots, torch: Torch, clock: Clock, seconds: float) -> int:
    """Check four times a second and return the number of snapshots."""
    before = torch.calls.count("dump")
    for _ in range(int(4 * seconds)):
        clock.now += 0.25
        followed.check()
    return torch.calls.count("dump") - before


def test_a_peak_is_written_once_it_has_settled(tmp_path: Path, clock: Clock) -> None:
    torch = Torch()
    followed = Snapshots(torch, str(tmp_path))
    for _ in range(4):  # a warm-up in several steps
        torch.devices[0].take(500 * MIB)
        assert checked(followed, torch, clock, SETTLED / 2) == 0
    assert checked(followed, torch, clock, 2 * SETTLED) == 1
    assert (
        (tmp_path / next(tmp_path.glob("torch-peak-*.pickle")))
        .read_bytes()
        .endswith(b"%d bytes" % (2000 * MIB))
    )
    torch.devices[0].take(100 * MIB)
    assert checked(followed, torch, clock, 10 * SETTLED) == 0, "it is not worth another one"


def test_memory_that_never_settles_is_written_too(tmp_path: Path, clock: Clock) -> None:
    torch = Torch()
    followed = Snapshots(torch, str(tmp_path))
    written = 0
    for _ in range(int(10 * LONGEST_RISE)):
        torch.devices[0].take(50 * MIB)
        written += checked(followed, torch, clock, 0.25)
    assert written == 2


def test_the_end_does_not_wait_and_the_list_has_the_growth(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = Torch()
    followed = Snapshots(torch, str(tmp_path))
    sizes = iter([100 * MIB, 130 * MIB])
    monkeypatch.setattr(snapshots, "_resident", lambda: next(sizes))
    torch.devices[0].take(500 * MIB)
    followed.check(ends=True)
    (listed,) = tmp_path.glob("torch-*.json")
    assert json.loads(listed.read_text())["grown"] == 30 * MIB


def test_the_resident_size_is_read() -> None:
    assert snapshots._resident() > MIB
