"""`--upload`: the record in a store, while the run goes on and at its end, and read from there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.workers.uploading import Mirror
from otel_memwatch.wings.index.remote import here
from otel_memwatch.wings.ranks.groups import find_group
from tests.support.programs import need
from tests.support.rank_runs import Course, rank_run
from tests.support.run_directory import MIB
from tests.support.torture import wait_for
from tests.support.wrapped import PROGRAM, environment, work

TIMEOUT = 120


def wrap(runs, url, *command, **variables):
    argv = [*PROGRAM, "wrap", "--quiet", "--runs", str(runs), "--upload", url, "--", *command]
    return subprocess.run(argv, env=environment(**variables), capture_output=True, text=True, timeout=TIMEOUT)


def report(place, **variables):
    done = subprocess.run(
        [*PROGRAM, "report", place, "--json"],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def store():
    """An S3 that is moto's, with a bucket; gives the variables by which clients find it."""
    need("moto")
    need("s3fs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    server = subprocess.Popen(
        [sys.executable, "-c", "import sys; from moto.server import main; main(sys.argv[1:])", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    make = "import s3fs; s3fs.S3FileSystem().mkdir('bucket')"
    try:
        until = time.monotonic() + 60
        while subprocess.run(
            [sys.executable, "-c", make], env=environment(**variables), capture_output=True
        ).returncode:
            assert time.monotonic() < until
            time.sleep(0.3)
        yield variables
    finally:
        server.kill()
        server.wait()


def test_ranks_uploaded_to_s3_are_a_group_there(tmp_path, store):
    for rank in range(2):
        done = wrap(tmp_path / f"node{rank}", "s3://bucket/train", *work("a40 s300"), **store, RANK=str(rank), WORLD_SIZE="3",
                    MASTER_ADDR="head", MASTER_PORT="1")  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    document = report("s3://bucket/train", **store)
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1]
    assert document["missing"] == [2]
    assert document["memory"]["together"]["high"] >= 40 * MIB


def test_a_store_that_is_not_there_is_one_line_and_does_not_change_the_command_s_end(tmp_path):
    done = wrap(tmp_path / "runs", "nothing://here/runs", *work("a10 x7"))
    assert done.returncode == 7
    assert len(done.stderr.splitlines()) == 1
    assert "was not uploaded to nothing://here/runs" in done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_plain_installation_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(Unavailable, match="otel-memwatch\\[upload\\]"):
        Mirror(tmp_path, "s3://bucket/runs")


def test_the_uploading_process_is_no_part_of_the_run(tmp_path):
    done = wrap(tmp_path / "runs", f"file://{tmp_path}/store", *work("a10 s700"))
    assert (done.returncode, done.stderr) == (0, "")
    (there,) = (tmp_path / "store").iterdir()
    (mine,) = (tmp_path / "runs").iterdir()
    assert sorted(path.name for path in there.iterdir()) == sorted(
        path.name for path in mine.iterdir() if not path.name.startswith(".")
    )
    assert json.loads((there / "run.json").read_text())["peaks"]["tree"]["bytes"] < 20 * MIB
    assert all(path.read_bytes() == (mine / path.name).read_bytes() for path in there.iterdir())


def test_what_is_uploaded_while_a_run_goes_on_is_a_run_at_any_time(tmp_path):
    made = rank_run(
        tmp_path / "runs" / "r0", Course([0, 0.5, 2, 2.5], [10 * MIB, 50 * MIB, MIB, 0]), rank=0, size=1
    )
    whole = (made.path / "samples.jsonl").read_bytes()
    store = f"file://{tmp_path}/store"
    mirror = Mirror(made.path, store)
    head = whole.index(b"\n") + 1
    for end in (head + (len(whole) - head) // 3, head + 2 * (len(whole) - head) // 3, len(whole)):
        (made.path / "samples.jsonl").write_bytes(whole[:end])
        mirror.upload()
    (there,) = (tmp_path / "store").iterdir()
    parts = [path for path in there.iterdir() if ".part-" in path.name and "samples" in path.name]
    assert len(parts) == 3
    fetched = os.path.join(here(store), there.name, "samples.jsonl")
    with open(fetched, "rb") as file:
        assert file.read() == whole
    # A part that never came: the record ends before it.
    sorted(parts)[1].unlink()
    group = find_group(store + "/")
    assert group.ranks[0].run.record.samples([]).time[-1] < 1.5
    mirror.upload(last=True)
    assert not [path for path in there.iterdir() if ".part-" in path.name]
    assert (there / "samples.jsonl").read_bytes() == whole


def test_runs_of_two_machines_with_one_name_are_two_in_the_store(tmp_path):
    """Two pods start the same command within the same second, as process 1: its name is unique on its machine only."""
    store = f"file://{tmp_path}/store"
    for rank in range(2):
        course = Course([0, 0.5, 2, 2.5], [10 * MIB, (50 + rank) * MIB, MIB, 0])
        made = rank_run(tmp_path / f"machine{rank}" / "same", course, rank=rank, size=2)
        mirror = Mirror(made.path, store)
        mirror.upload()
        mirror.upload(last=True)
    group = find_group(store)
    assert [(rank.rank, rank.peak.low) for rank in group.ranks] == [(0, 50 * MIB), (1, 51 * MIB)]
    assert group.missing == ()


def test_a_second_signal_to_attach_gives_up_an_upload_that_hangs(tmp_path):
    out = tmp_path / "run"
    with socket.create_server(("127.0.0.1", 0)) as silent, subprocess.Popen(["sleep", "600"]) as target:
        url = f"ftp://127.0.0.1:{silent.getsockname()[1]}/runs"
        argv = [*PROGRAM, "attach", str(target.pid), "--quiet", "--out", str(out), "--upload", url]
        attached = subprocess.Popen(argv, env=environment(), stderr=subprocess.PIPE)
        try:
            wait_for(lambda: _state(out) == "running" and (out / "samples.jsonl").exists())
            attached.send_signal(signal.SIGINT)
            wait_for(lambda: _state(out) == "finished")
            attached.send_signal(signal.SIGINT)
            _, said = attached.communicate(timeout=20)  # the server is waited for 30 s, the upload 60
        finally:
            for one in (attached, target):
                one.kill()
                one.wait()
    assert b"it was given up" in said


def _state(directory):
    try:
        return json.loads((directory / "run.json").read_text())["state"]
    except (OSError, ValueError):
        return None


def test_a_url_without_runs_is_one_sentence(tmp_path):
    done = subprocess.run(
        [*PROGRAM, "report", f"file://{tmp_path}/none"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1


def test_a_slip_in_the_bucket_s_name_is_one_line_and_makes_no_bucket(tmp_path, store):
    done = wrap(tmp_path / "runs", "s3://bukt-typo/runs", *work("a10 x7"), **store)
    assert done.returncode == 7
    (line,) = done.stderr.splitlines()
    assert "was not uploaded to s3://bukt-typo/runs" in line
    assert "bucket does not exist" in line
    listed = "import s3fs; print(s3fs.S3FileSystem().ls(''))"
    buckets = subprocess.run(
        [sys.executable, "-c", listed], env=environment(**store), capture_output=True, text=True
    )
    assert "bukt-typo" not in buckets.stdout
    assert "bucket" in buckets.stdout


def test_the_only_run_at_a_url_is_intended_by_it_and_hints_name_the_url(tmp_path):
    url = f"file://{tmp_path}/store/train-7"
    for name in ("first", "second"):
        assert wrap(tmp_path / name, url, *work("a10 s100")).returncode == 0
        if name == "first":
            assert report(url)["ended"]["exit_code"] == 0
    done = subprocess.run(
        [*PROGRAM, "report", url], env=environment(), capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 2
    assert f"{url} holds 2 runs" in done.stderr
    assert "memwatch-fetched" not in done.stderr
    named = done.stderr.partition("as in ")[2].strip().rstrip(".").rstrip(")")
    assert report(named)["ended"]["exit_code"] == 0


def test_runs_lists_what_is_at_a_url_and_prune_leaves_it(tmp_path):
    url = f"file://{tmp_path}/store"
    assert wrap(tmp_path / "runs", url, *work("a10 s100")).returncode == 0
    argv = [*PROGRAM, "runs", url, "--json"]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=TIMEOUT)
    assert len(json.loads(done.stdout)) == 1, done.stderr
    argv = [*PROGRAM, "runs", "prune", "--keep", "0", url]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert len(list((tmp_path / "store").iterdir())) == 1
