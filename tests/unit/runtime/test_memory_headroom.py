"""What the limits of a control group leave, read from files of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.runtime.memory_headroom import MemoryHeadroom, memory_headroom

MIB = 1 << 20
V1, V2 = 1, 2


class Groups:
    """A /proc and a hierarchy of control groups, made of ordinary files; we are in /job/step."""

    def __init__(self, path: Path, version: int) -> None:
        self.proc, self.mount, self._version = path / "proc", path / "groups", version
        (self.proc / "self").mkdir(parents=True)
        line = "4:memory:/job/step\n" if version == V1 else "0::/job/step\n"
        (self.proc / "self/cgroup").write_text(line)
        kind = "cgroup cgroup rw,memory" if version == V1 else "cgroup2 cgroup2 rw"
        (self.proc / "self/mountinfo").write_text(f"30 25 0:26 / {self.mount} rw shared:4 - {kind}\n")
        for name in ("", "job", "job/step"):
            (self.mount / name).mkdir()

    def group(self, name: str, limit: int | None, usage: int, cache: int = 0, shared: int = 0) -> None:
        """Writes the files of a group; `cache` can be dropped, `shared` memory cannot."""
        folder = self.mount / name
        if self._version == V1:
            unlimited = (1 << 63) - 4096
            (folder / "memory.limit_in_bytes").write_text(f"{unlimited if limit is None else limit}\n")
            (folder / "memory.usage_in_bytes").write_text(f"{usage}\n")
            stat = (
                f"cache {cache + shared}\ninactive_file 7\ntotal_inactive_file {cache}\ntotal_active_file 0\n"
            )
        else:
            (folder / "memory.max").write_text(f"{'max' if limit is None else limit}\n")
            (folder / "memory.current").write_text(f"{usage}\n")
            stat = f"file {cache + shared}\nshmem {shared}\ninactive_file {cache // 2}\nactive_file {cache - cache // 2}\n"
        (folder / "memory.stat").write_text(stat)


@pytest.fixture(params=[V1, V2])
def groups(request: pytest.FixtureRequest, tmp_path: Path) -> Groups:
    return Groups(tmp_path, request.param)


def test_without_a_limit_there_is_nothing_to_say(groups: Groups, tmp_path: Path) -> None:
    assert memory_headroom(groups.proc) is None, "files that are not there limit nothing"
    groups.group("job/step", None, 10 * MIB)
    groups.group("job", None, 20 * MIB)
    assert memory_headroom(groups.proc) is None
    assert memory_headroom(tmp_path / "nowhere") is None


def test_cache_can_be_dropped_and_shared_memory_cannot(groups: Groups) -> None:
    groups.group("job/step", 200 * MIB, 190 * MIB, cache=60 * MIB, shared=100 * MIB)
    assert memory_headroom(groups.proc) == MemoryHeadroom(70 * MIB, 200 * MIB)


def test_the_tightest_of_all_groups_above_counts(groups: Groups) -> None:
    groups.group("job/step", 1000 * MIB, 50 * MIB)
    groups.group("job", 300 * MIB, 280 * MIB, cache=5 * MIB)
    assert memory_headroom(groups.proc) == MemoryHeadroom(25 * MIB, 300 * MIB)


def test_above_its_limit_nothing_is_left(groups: Groups) -> None:
    groups.group("job", 100 * MIB, 120 * MIB)
    assert memory_headroom(groups.proc) == MemoryHeadroom(0, 100 * MIB)
