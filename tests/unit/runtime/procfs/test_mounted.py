from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_memwatch.runtime.procfs.mounted import hides_others

ALL_BUT_TRACE = 0x1FF_FFF7_FFFF
TRACE = 1 << 19
OUR_GROUP = os.getegid()
FOREIGN_GROUP = 1 + max(OUR_GROUP, *os.getgroups(), 0)


@pytest.mark.parametrize(
    ("options", "capabilities", "hides"),
    [
        ("rw", 0, False),
        ("rw,hidepid=off", 0, False),
        (f"rw,hidepid=0,gid={FOREIGN_GROUP}", 0, False),
        (f"rw,gid={FOREIGN_GROUP},hidepid=invisible", 0, True),
        (f"rw,gid={FOREIGN_GROUP},hidepid=noaccess", ALL_BUT_TRACE, True),
        (f"rw,gid={FOREIGN_GROUP},hidepid=1", 0, True),
        (f"rw,gid={FOREIGN_GROUP},hidepid=2", 0, True),
        (f"rw,gid={FOREIGN_GROUP},hidepid=2", TRACE, False),
        (f"rw,gid={OUR_GROUP},hidepid=2", 0, False),
        (f"rw,gid={OUR_GROUP},hidepid=ptraceable", 0, True),
        (f"rw,gid={OUR_GROUP},hidepid=4", TRACE, False),
    ],
)
def test_whom_a_mount_hides(tmp_path: Path, options: str, capabilities: int, hides: bool) -> None:
    own = tmp_path / "self"
    own.mkdir()
    (own / "mountinfo").write_text(
        f"22 1 0:20 / {tmp_path} rw,nosuid shared:5 - proc proc rw,hidepid=2,gid={FOREIGN_GROUP}\n"
        f"23 1 0:21 / {tmp_path} rw,nosuid - proc proc {options}\n"
        f"24 1 0:22 / {tmp_path}/other rw - proc proc rw,hidepid=2,gid={FOREIGN_GROUP}\n"
    )
    (own / "status").write_text(f"Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t{capabilities:016x}\n")
    assert hides_others(tmp_path) is hides


def test_where_it_is_unknown_nothing_is_said(tmp_path: Path) -> None:
    assert not hides_others(tmp_path)
