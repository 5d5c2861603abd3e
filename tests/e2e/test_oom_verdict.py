"""A limit that the target shares with the monitor: what the OOM killer's verdict says of the monitor's own part."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.control_group import group
from tests.support.wrapped import MIB, wrap

GROWS = [sys.executable, "-S", "-c", "held = [bytearray(1 << 20) for _ in range(1 << 20)]"]


@pytest.mark.parametrize("cgroup", ["auto", "off"])
def test_the_monitors_share_is_named(tmp_path: Path, cgroup: str) -> None:
    with group(160 * MIB) as shared:
        inside = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', str(shared.path)]
        done = wrap(GROWS, "--cgroup", cgroup, out=tmp_path / "run", through=inside)
    reason = done.info["exit"]["reason"]
    found = re.search(
        r"OOM killer, at ([\d.]+) MiB of 160.0 MiB, of which the monitor had ([\d.]+) MiB", reason
    )
    assert found, reason
    assert 5 <= float(found[2]) <= 100


def test_a_limit_of_the_targets_own_has_no_part_of_the_monitors(tmp_path: Path) -> None:
    with group(160 * MIB) as own:
        enter = 'echo 0 >"$0/cgroup.procs" && exec "$@"'
        done = wrap(["sh", "-c", enter, str(own.path), *GROWS], "--cgroup", "off", out=tmp_path / "run")
    assert "monitor" not in done.info["exit"]["reason"]
