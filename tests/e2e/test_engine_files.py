"""Files of workflow engines, corrected from the runs of their jobs: as the engines leave them, whole and half-written."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.wrapped import PROGRAM, environment

HEAD = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time"
ROW = "0.30\t0:00:00\t16.50\t92.15\t12.20\t8.60\t0.00\t0.04\t7.42\t0.29"
"""What Snakemake says of a job whose peak it has not seen."""
HOLD = f"{sys.executable} -S -c 'x = bytearray(%d << 20)'"
TRACE = """nextflow.trace/v2
realtime=3029
%cpu=812
cpu_model=Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz
rchar=79901
wchar=427
syscr=276
syscw=22
read_bytes=380928
write_bytes=0
%mem=71
vmem=728216
rss=581672
peak_vmem=728216
peak_rss=16512
vol_ctxt=1906
inv_ctxt=11615
"""


def program(place: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [*PROGRAM, *arguments], cwd=place, env=environment(), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


class Workflow:
    """A directory as Snakemake leaves it, with jobs that were really run by the shell that records."""

    def __init__(self, place: Path) -> None:
        self.place = place
        program(place, "shell", "--install", "shells", "--runs", "memwatch-runs")
        self.logs = place / ".snakemake" / "log"
        self.metadata = place / ".snakemake" / "metadata"
        self.logs.mkdir(parents=True)
        self.metadata.mkdir()

    def job(self, rule: str, output: str, benchmark: str, command: str, text: str, times: int = 1) -> Path:
        started = time.time()
        for _ in range(times):
            script = f"set -euo pipefail;  {command}"
            subprocess.run(
                [self.place / "shells" / "bash", "-c", script],
                cwd=self.place, env=environment(), check=True, timeout=60,
            )  # fmt: skip
        fields = {
            "rule": rule,
            "shellcmd": command,
            "starttime": started,
            "endtime": time.time(),
            "incomplete": False,
        }
        name = base64.urlsafe_b64encode(output.encode()).decode()
        (self.metadata / name).write_text(json.dumps(fields))
        with (self.logs / "2026-11-22T094738.842498.snakemake.log").open("a") as log:
            log.write(
                f"[Sun Nov 22 09:47:39 2026]\nlocalrule {rule}:\n    output: {output}, other.txt\n    jobid: 3\n"
            )
            log.write(f"    benchmark: {benchmark}\n    reason: Missing output files: {output}\n")
        path = self.place / benchmark
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        return path


def test_benchmark_files_become_exact_and_keep_their_originals(tmp_path: Path) -> None:
    flow = Workflow(tmp_path)
    big = flow.job("big", "out/big.txt", "bench/big.tsv", HOLD % 256, f"{HEAD}\n{ROW}\n")
    extended = {
        "rule_name": "json",
        "wildcards": {"s": "a"},
        "s": 0.3,
        "h:m:s": "0:00:00",
        "max_rss": 16.5,
        "max_pss": 8.6,
    }
    lines = flow.job("json", "out/a.txt", "bench/a.jsonl", HOLD % 64, json.dumps(extended) + "\n")
    twice = flow.job("twice", "out/t.txt", "bench/t.tsv", "true", f"{HEAD}\n{ROW}\n{ROW}\n", times=2)
    half = flow.job("half", "out/h.txt", "bench/h.tsv", "true # half", f"{HEAD}\n0.30\t0:00")
    missing = flow.job("few", "out/f.txt", "bench/f.tsv", "true # few", f"{HEAD}\n0.3\t0:00:00\n")
    other = flow.job("script", "out/s.txt", "bench/s.tsv", "true # script", f"{HEAD}\n{ROW}\n")
    (flow.metadata / base64.urlsafe_b64encode(b"out/s.txt").decode()).write_text('{"shellcmd": null, "rule')
    before = {path: path.read_text() for path in (half, missing, other)}

    out, err = program(tmp_path, "engine", "snakemake")
    assert out == "3 files corrected, 3 left; originals: *.orig\n"
    assert [line.partition(" ")[0] for line in err.splitlines()] == [
        "bench/h.tsv",
        "bench/f.tsv",
        "bench/s.tsv",
    ]
    assert {path: path.read_text() for path in before} == before

    head, row = (line.split("\t") for line in big.read_text().splitlines())
    found = dict(zip(head, row, strict=True))
    bare = exact_of(tmp_path, HOLD % 256)
    assert float(found["max_needed"]) == pytest.approx(bare, abs=0.01)
    assert 256 < bare < 280
    assert 256 < float(found["max_rss"]) < 300, "with the files that it maps"
    assert Path(f"{big}.orig").read_text() == f"{HEAD}\n{ROW}\n"
    assert big.stat().st_mtime == 1_700_000_000, "an engine would do the job again"
    changed = json.loads(lines.read_text())
    assert changed["max_needed"] == pytest.approx(exact_of(tmp_path, HOLD % 64), abs=0.01)
    assert (changed["rule_name"], changed["wildcards"]) == ("json", {"s": "a"})
    assert len(twice.read_text().splitlines()) == 3

    # A second time changes nothing, and the original stays the engine's.
    now = big.read_text()
    program(tmp_path, "engine", "snakemake", ".")
    assert (big.read_text(), Path(f"{big}.orig").read_text()) == (now, f"{HEAD}\n{ROW}\n")


def exact_of(place: Path, command: str) -> float:
    """MiB that the run of a command needed, as its record says."""
    for path in (place / "memwatch-runs").glob("*/run.json"):
        info: dict[str, Any] = json.loads(path.read_text())
        if info["command"][-1].endswith(command):
            return float(info["peaks"]["tree"]["bytes"]) / (1 << 20)
    raise AssertionError(command)


def test_traces_of_nextflow_become_exact(tmp_path: Path) -> None:
    program(tmp_path, "shell", "--install", "shells", "--runs", "memwatch-runs")
    tasks = []
    for name, script, trace in (
        ("4b/cfff21", HOLD % 128, TRACE),
        ("a7/111111", "true", "nextflow.trace/v2\nrealtime=10\npeak_r"),
        ("b8/222222", "true", ""),
    ):
        task = tmp_path / "work" / name
        task.mkdir(parents=True)
        (task / ".command.run").write_text(f"#!/bin/bash\n# NEXTFLOW TASK: FLOW:ALIGN (sample {name})\n")
        (task / ".command.sh").write_text(f"{script}\n")
        subprocess.run(
            [tmp_path / "shells" / "bash", "-euo", "pipefail", ".command.sh"],
            cwd=task, env=environment(), check=True, timeout=60,
        )  # fmt: skip
        (task / ".command.trace").write_text(trace)
        tasks.append(task)
    lonely = tmp_path / "work" / "c9" / "333333"
    lonely.mkdir(parents=True)
    (lonely / ".command.trace").write_text(TRACE)

    out, err = program(tmp_path, "engine", "nextflow", ".")
    assert out == "1 file corrected, 3 left; originals: *.orig\n"
    assert "no run of its task" in err
    exact = dict(line.split("=", 1) for line in (tasks[0] / ".command.trace").read_text().splitlines()[1:])
    old = dict(line.split("=", 1) for line in TRACE.splitlines()[1:])
    assert list(exact) == list(old)
    assert 128 < int(exact["peak_rss"]) / 1024 < 172
    for kept in ("realtime", "cpu_model", "syscr", "vol_ctxt", "inv_ctxt"):
        assert exact[kept] == old[kept]
    assert (tasks[0] / ".command.trace.orig").read_text() == TRACE
    report = json.loads((tasks[0] / ".command.memwatch.json").read_text())
    assert report["run"]["tags"]["rule"] == "ALIGN"
    assert (lonely / ".command.trace").read_text() == TRACE

    (run,) = (
        path.parent
        for path in (tmp_path / "memwatch-runs").glob("*/run.json")
        if str(tasks[0]) in path.read_text()
    )
    trace, _ = program(tmp_path, "export", str(run), "--to", "nextflow-trace")
    assert re.match(r"nextflow\.trace/v2\nrealtime=\d+\n%cpu=\d+\n", trace)
    assert f"peak_rss={exact['peak_rss']}\n" in trace


def test_where_there_is_nothing_to_do(tmp_path: Path) -> None:
    _, err = program(tmp_path, "engine", "snakemake", code=1)
    assert "There is no finished run below" in err
    program(tmp_path, "engine", "nextflow", "nowhere", code=1)
    program(tmp_path, "engine", "luigi", code=2)
