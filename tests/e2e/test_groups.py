"""Groups as people get them: real ranks under `wrap`, with the environments of launchers and with launchers themselves."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import time

import pytest

from otel_memwatch.runtime.kernel import processors, rss_error
from otel_memwatch.truth.cgroup_windows import charge_error
from tests.support.peers import needed
from tests.support.torture import wait_for
from tests.support.wrapped import MIB, PROGRAM, environment, work

TIMEOUT = 200
STARTED: list[subprocess.Popen[bytes]] = []


def torchrun(rank, size=8, **more):
    """The environment that torchrun makes for a rank, four on each of two nodes."""
    return {
        "TORCHELASTIC_RUN_ID": "planted", "RANK": str(rank), "LOCAL_RANK": str(rank % 4), "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": str(rank // 4), "TORCHELASTIC_RESTART_COUNT": "0",
        "MASTER_ADDR": "localhost", "MASTER_PORT": "29500", **more,
    }  # fmt: skip


def start(runs, rank, script, **variables):
    argv = [*PROGRAM, "wrap", "--quiet", "--no-report", "--runs", str(runs), "--", *work(script)]
    started = subprocess.Popen(argv, env=environment(**torchrun(rank), **variables))
    STARTED.append(started)
    return started


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind():
    yield
    for one in STARTED:
        if one.poll() is None:
            one.kill()
        one.wait(TIMEOUT)


def report(place, *options):
    done = subprocess.run(
        [*PROGRAM, "report", str(place), "--json", *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """Eight ranks with planted peaks, staggered, which all hold theirs until every one has it."""
    runs = tmp_path_factory.mktemp("eight")
    ranks = [start(runs, rank, f"s{60 * rank} a{40 + 10 * rank} s600000") for rank in range(8)]
    held = 0
    until = time.monotonic() + 100
    while held < 8 and time.monotonic() < until:
        time.sleep(0.2)
        held = sum(_holds(path) for path in runs.iterdir())
    assert held == 8
    # What all hold at one instant is known closely once none has taken anything for some ticks, which a busy machine takes late.
    files = [path / "samples.jsonl" for path in runs.iterdir()]
    enough = [len(file.read_bytes().splitlines()) + 10 for file in files]
    while any(len(file.read_bytes().splitlines()) < lines for file, lines in zip(files, enough, strict=True)):
        assert time.monotonic() < until
        time.sleep(0.2)
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        rank.wait(TIMEOUT)
    return runs


def _holds(path):
    """Whether the last ticks of a run are of one size, that of its plan."""
    try:
        lines = (path / "samples.jsonl").read_bytes().splitlines()
        info = json.loads((path / "run.json").read_text())
        columns = [column["metric"] for column in json.loads(lines[0])["columns"]]
        index = columns.index("process.memory.usage") + 1
        wanted = next(int(word[1:]) for word in info["command"] if word[:1] == "a")
        return info["group"]["rank"] >= 0 and all(
            json.loads(line)[index] > wanted * MIB for line in lines[-2:]
        )
    except (OSError, ValueError, LookupError, TypeError, StopIteration):
        return False


def truth():
    return sum(40 + 10 * rank for rank in range(8)) * MIB


def near(runs, high):
    """Bytes that the bounds of the sum may be apart.

    A share of it, which is larger where a busy machine took samples late, and both errors of each rank's counters.
    """
    gaps = []
    for path in runs.iterdir():
        # At the end, when all hold theirs: at the beginning eight programs start at once.
        ticks = [json.loads(line)[0] for line in (path / "samples.jsonl").read_text().splitlines()[-9:]]
        gaps += [after - before for before, after in itertools.pairwise(ticks)]
    error = max(rss_error(), charge_error(processors()))
    return (0.02 if max(gaps) < 0.2 else 0.1) * high + 2 * 8 * error


def test_eight_real_ranks_with_planted_peaks_are_one_sum(eight):
    document = report(eight)
    together = document["memory"]["together"]
    # Each process has up to 3 MiB of private memory beside what it takes on request.
    assert together["low"] <= truth() + 8 * 3 * MIB
    assert truth() <= together["high"]
    assert together["high"] - together["low"] <= near(eight, together["high"])
    assert document["group"]["launcher"] == "torchrun"
    assert document["missing"] == []
    assert document["memory"]["largest"]["rank"] == 7
    assert document["clocks"] == {
        "reference": "one machine",
        "error": 0.0,
        "hosts": [{"clock": document["clocks"]["hosts"][0]["clock"], "error": 0.0}],
    }


def test_the_same_ranks_on_eight_hosts_are_the_sum_of_the_hosts_peaks(eight, tmp_path):
    """Each record is given a boot id and a separate monotonic clock, and a wall clock that is wrong."""
    places = tmp_path / "runs"
    shutil.copytree(eight, places)
    for number, path in enumerate(sorted(places.iterdir())):
        wrong = 5.0 * (number / 7 - 0.5)
        ahead = 1000.0 * number
        info = json.loads((path / "run.json").read_text())
        info["clock"]["boot_id"] = f"boot-{number}"
        info["host"]["name"] = f"node-{number}"
        for name in ("started", "ended"):
            info[name] = {"wall": info[name]["wall"] + wrong, "monotonic": info[name]["monotonic"] + ahead}
        (path / "run.json").write_text(json.dumps(info))
        lines = [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]
        moved = [[line[0] + ahead, *line[1:]] if isinstance(line, list) else line for line in lines]
        (path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in moved))
    document = report(places)
    together = document["memory"]["together"]
    assert truth() <= together["high"]
    assert together["how"] == "sum of the hosts' own peaks"
    assert together["low"] == sum(host["low"] for host in document["hosts"])
    assert len(document["hosts"]) == 8
    assert document["clocks"]["error"] is None


def _ticks(path):
    return (path / "samples.jsonl").read_bytes().count(b"\n")


def test_ranks_that_are_killed_are_named_by_any_sender(tmp_path):
    runs = tmp_path / "runs"
    ranks = [start(runs, rank, "a20 s600000") for rank in range(5)]
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and (not runs.is_dir() or sum(map(_holds, runs.iterdir())) < 5):
        time.sleep(0.2)
    paths = {json.loads((path / "run.json").read_text())["group"]["rank"]: path for path in runs.iterdir()}
    target = json.loads((paths[2] / "run.json").read_text())["target"]["pid"]
    os.kill(target, 9)
    ranks[2].wait(TIMEOUT)
    # Another rank is seen alive after that. Then its monitor dies with its machine.
    seen = _ticks(paths[4])
    wait_for(lambda: _ticks(paths[4]) >= seen + 2)
    target = json.loads((paths[4] / "run.json").read_text())["target"]["pid"]
    ranks[4].kill()
    ranks[4].wait(TIMEOUT)
    os.kill(target, 9)
    for rank in (0, 1, 3):
        ranks[rank].terminate()
        ranks[rank].wait(TIMEOUT)
    shutil.rmtree(paths[1])
    document = report(runs)
    assert document["missing"] == [1, 5, 6, 7]
    assert document["first_death"]["rank"] == 2
    assert document["first_death"]["reason"].startswith("killed by SIGKILL")
    states = {rank["rank"]: rank["state"] for rank in document["ranks"]}
    assert states == {0: "finished", 2: "finished", 3: "finished", 4: "incomplete"}
    assert document["memory"]["together"]["high"] is None


def test_group_and_rank_can_be_named(tmp_path):
    for rank in range(2):
        done = subprocess.run(
            [*PROGRAM, "wrap", "--quiet", "--group", "mine", "--rank", str(rank), "--runs", str(tmp_path), "--", "true"],
            env=environment(), timeout=TIMEOUT,
        )  # fmt: skip
        assert done.returncode == 0
    document = report(tmp_path)
    assert (document["group"]["id"], [rank["rank"] for rank in document["ranks"]]) == ("mine", [0, 1])


def test_a_run_within_the_run_of_its_host_counts_once(tmp_path):
    inner = [*PROGRAM, "wrap", "--quiet", "--runs", str(tmp_path), "--rank", "0", "--", *work("a60 s500")]
    outer = [*PROGRAM, "wrap", "--quiet", "--group", "mine", "--runs", str(tmp_path), "--", *inner]
    assert subprocess.run(outer, env=environment(OTEL_MEMWATCH_GROUP="mine"), timeout=TIMEOUT).returncode == 0
    document = report(tmp_path)
    assert [(rank["rank"], rank["inside"]) for rank in document["ranks"]] == [(0, True), (None, False)]
    largest = max(rank["peaks"]["tree"]["high"] for rank in document["ranks"])
    assert document["memory"]["together"]["high"] <= largest


def test_ranks_of_open_mpi(tmp_path):
    argv = [
        needed("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", "3",
        *PROGRAM, "wrap", "--quiet", "--runs", str(tmp_path), "--", *work("a20 s300"),
    ]  # fmt: skip
    done = subprocess.run(argv, env=environment(), timeout=TIMEOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = report(tmp_path)
    assert document["group"]["launcher"] == "openmpi"
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1, 2]
    assert document["group"]["size"] == 3
    assert document["missing"] == []
