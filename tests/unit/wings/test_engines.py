"""A file of a workflow engine that is replaced: its first version is beside it, whole, or nothing has changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from otel_memwatch.wings.engines import replace


def no_link(*_: object) -> None:
    raise OSError(errno.EPERM, "no links here")


def test_the_first_version_stays_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("linked", "copied"):
        file = tmp_path / name
        file.write_text("first")
        replace(file, "second")
        replace(file, "third")
        assert (file.read_text(), (tmp_path / f"{name}.orig").read_text()) == ("third", "first")
        monkeypatch.setattr(os, "link", no_link)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copied",
        "copied.orig",
        "linked",
        "linked.orig",
    ]


def test_a_full_disk_leaves_no_half_of_the_first_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace"
    file.write_text("first")

    def write_half(path: Path, data: bytes) -> int:
        with open(path, "wb") as out:
            out.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(OSError, match="no space"):
        replace(file, "second")
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]
    assert file.read_text() == "first"
