"""What is recorded of the clock."""

from __future__ import annotations

import json
import time

from otel_memwatch.record import clock


def test_a_look_has_both_clocks_at_one_moment(tmp_path):
    before = time.monotonic()
    lines = [json.loads(line) for line in clock.look(tmp_path)]
    assert before - 1e-3 <= lines[0]["monotonic"] <= time.monotonic()
    assert abs(lines[0]["wall"] - time.time()) < 60
    assert lines[0]["error"] is None or lines[0]["error"] >= 0


def test_the_file_that_is_stamped_is_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(clock, "server_of", lambda _: "nfs4 box:/x")
    told = clock.stamp(str(tmp_path))
    assert told["by"] == "nfs4 box:/x"
    assert told["before"] <= told["after"]
    assert abs(told["stamp"] - time.time()) < 60
    assert list(tmp_path.iterdir()) == []


def test_only_file_systems_whose_server_stamps_files_count(tmp_path):
    import os

    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    table = tmp_path / "mountinfo"
    for kind, source, expected in (
        ("nfs4", "box:/x", "nfs4 box:/x"),
        ("ext4", "box:/x", None),
        ("lustre", "box:/x", None),
        # The same on many hosts, each with a clock of its own.
        ("virtiofs", "kataShared", None),
        ("9p", "hostshare", None),
        ("nfs4", "127.0.0.1:/", None),
        ("nfs", "localhost:/export", None),
        ("cifs", "//localhost/x", None),
    ):
        table.write_text(
            f"36 35 0:9999 / /other rw - nfs4 no:/no rw\n37 35 {number} / / rw shared:1 - {kind} {source} rw\n"
        )
        assert clock.server_of(str(tmp_path), str(table)) == expected


def test_a_directory_that_cannot_be_written_has_no_stamp(tmp_path, monkeypatch):
    monkeypatch.setattr(clock, "server_of", lambda _: "nfs4 box:/x")
    assert clock.stamp(str(tmp_path / "gone")) is None


def test_the_id_of_this_start_of_the_machine_and_its_time_namespace(tmp_path):
    assert clock.boot_id() == clock.boot_id()
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "timens_offsets").write_text("monotonic    86400  500000000\nboottime 0 0\n")
    assert clock.monotonic_offset(str(tmp_path)) == 86400.5
    assert clock.monotonic_offset(str(tmp_path / "none")) == 0.0
    assert clock.boot_id(str(tmp_path)) is None
