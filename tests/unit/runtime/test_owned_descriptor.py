"""Descriptors that the program may close and reuse."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from otel_memwatch.runtime.owned_descriptor import OwnedDescriptor, move_high


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def test_close_closes_our_descriptor_once(pipe):
    owned = OwnedDescriptor(pipe[1])
    assert owned.is_ours()
    owned.close()
    assert owned.number == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pipe[1])
    owned.close()


def test_a_closed_descriptor_is_not_ours(pipe):
    owned = OwnedDescriptor(pipe[1])
    os.close(pipe[1])
    assert not owned.is_ours()
    owned.close()


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_a_reused_number_stays_open(pipe, kind, tmp_path: Path):
    owned = OwnedDescriptor(pipe[1])
    if kind == "file":
        mine, other = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT), None
    else:
        other, mine = os.pipe()
    os.dup2(mine, pipe[1])
    owned.close()
    assert owned.number == -1
    assert os.fstat(pipe[1]) == os.fstat(mine)
    for descriptor in (mine, other):
        if descriptor is not None:
            os.close(descriptor)


def test_move_high_gives_a_number_that_no_child_inherits(pipe):
    high = move_high(pipe[0], 900)
    assert high >= 900
    assert not os.get_inheritable(high)
    os.write(pipe[1], b"x")
    assert os.read(high, 1) == b"x"
    os.close(high)


def test_move_high_keeps_the_number_above_the_limit(pipe):
    assert move_high(pipe[0], 1 << 30) == pipe[0]
