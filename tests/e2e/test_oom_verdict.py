"""A limit that the target shares with the monitor: what the OOM killer's verdict says of the monitor's own part."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.control_group import group
from tests.support.wrapped import MIB, wrap

GROWS = [sys.executable, "-S", "-c", "held = [bytearray(1 << 20) for _ in range(1 << 20)]"]


CAP_SYS_RESOURCE = 24


def may_spare() -> bool:
    """Returns whether a process of this user may lower its score with the OOM killer."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return bool(int(status["CapEff"], 16) >> CAP_SYS_RESOURCE & 1)


@pytest.mark.parametrize("cgroup", ["auto", "off"])
def test_the_monitors_share_is_named(tmp_path: Path, cgroup: str) -> None:
    with group(160 * MIB) as shared:
        inside = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', str(shared.path)]
        done = wrap(GROWS, "--cgroup", cgroup, out=tmp_path / "run", through=inside)
    reason = done.info["exit"]["reason"]
    found = re.search(
        r"OOM killer, at ([\d.]+) MiB of 160.0 MiB; the monitor used ([\d.]+) MiB of this limit", reason
    )
    assert found, reason
    assert 5 <= float(found[2]) <= 100


def test_the_kernel_spares_the_monitor_and_nothing_else(tmp_path: Path) -> None:
    """A dying target's memory takes a while to be free, and the kernel would kill the monitor for it."""
    scores = 'for pid in $$ $PPID; do cat /proc/$pid/oom_score_adj; done; [ "$(cat /proc/$PPID/oom_score_adj)" = -1000 ]'
    until_spared = f"n=0; until {scores}; do n=$((n + 1)); [ $n -lt 200 ] || exit 3; sleep 0.05; done"
    done = wrap(["sh", "-c", until_spared], "--quiet", out=tmp_path / "run")
    ours = Path("/proc/self/oom_score_adj").read_text().strip()
    if may_spare():
        assert done.code == 0, done.out
    assert set(done.out.split()[0::2]) == {ours}


def test_a_limit_of_the_targets_own_has_no_part_of_the_monitors(tmp_path: Path) -> None:
    with group(160 * MIB) as own:
        enter = 'echo 0 >"$0/cgroup.procs" && exec "$@"'
        done = wrap(["sh", "-c", enter, str(own.path), *GROWS], "--cgroup", "off", out=tmp_path / "run")
    assert "monitor" not in done.info["exit"]["reason"]
