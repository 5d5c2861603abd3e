"""What others have measured joins the table, and old runs leave it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import recorded
from tests.support.wrapped import call

if TYPE_CHECKING:
    from pathlib import Path

EXTENDED = (
    "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\tjobid\trule_name\twildcards\tparams"
    "\tthreads\tcpu_usage\tresources\tinput_size_mb\n"
    "2.46\t0:00:02\t96.27\t100.44\t86.98\t87.33\t0.00\t0.00\t3.63\t0.09\t1\tone\t{'s': 'a'}\t{}\t1\t8.94\t{'_cores': 1}\t{}\n"
)
TRACE = "task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss\tpeak_vmem\trchar\twchar\n"
TASK = "{id}\t02/5852bd\t2315074\tPREPARE:UNZIP (hg19.zip)\t{status}\t{code}\t2026-05-14 10:51:17.964\t7.2s\t4s\t79.6%\t11 MB\t36 MB\t1 MB\t3 MB\n"
SACCT = """\
JobID|JobName|State|ExitCode|Elapsed|Start|TotalCPU|MaxRSS
7|fit|TIMEOUT|0:0|01:00:05|2026-09-24T12:00:01|59:00.040|
7.batch|batch|CANCELLED|0:15|01:00:05|2026-09-24T12:00:01|59:00.040|2048K
7.extern|extern|COMPLETED|0:0|01:00:05|2026-09-24T12:00:01|00:00.001|0
8|fit|CANCELLED by 1000|0:0|00:00:05|2026-09-24T12:00:01|00:01.040|
8.batch|batch|CANCELLED|0:15|00:00:05|2026-09-24T12:00:01|00:01.040|1024K
9|fit|RUNNING|0:0|00:00:05|2026-09-24T12:00:01|00:01.040|
9.batch|batch|RUNNING|0:0|00:00:05|2026-09-24T12:00:01|00:01.040|512K
10|fit|COMPLETED|0:0|00:00:05|2026-09-24T12:00:01|00:01.040|
10.batch|batch|COMPLETED|0:0|00:00:05|2026-09-24T12:00:01|00:01.040|4096K
"""
FILES = {
    "align.tsv": (
        "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
        "12.5\t0:00:12\t2615.00\t9.0\t9.0\t524.00\t1.0\t2.0\t80.0\t10.0\n"
        "0.2\t0:00:00\tNA\tNA\tNA\tNA\tNA\tNA\tNA\tNA\n"
    ),
    "trace.txt": (
        "task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss\tpeak_vmem\trchar\twchar\n"
        "1\tab/cd\t7\tNFCORE:ALIGN:BWA (s1)\tCOMPLETED\t0\t2026-01-02 10:00:00.123\t3m\t2m 5s\t150.0%\t1.5 GB\t2 GB\t-\t-\n"
        "2\tab/ce\t8\tNFCORE:SORT (s1)\tFAILED\t137\t2026-01-02 10:00:00.123\t3m\t-\t-\t-\t-\t-\t-\n"
        "torn\tline\n"
    ),
    "sacct.txt": (
        "JobID|JobName|State|ExitCode|Elapsed|Start|TotalCPU|MaxRSS|ReqMem\n"
        "12_3|fit|OUT_OF_MEMORY|0:125|1-00:00:01|2026-01-02T10:00:00|00:10:00||4G\n"
        "12_3.batch|batch|OUT_OF_MEMORY|0:125|1-00:00:01|2026-01-02T10:00:00|00:10:00|4000000K|\n"
        "13|empty|COMPLETED|0:0|00:00:01|2026-01-02T10:00:00|00:00:00||1G\n"
    ),
    "time.txt": (
        '\tCommand being timed: "sort data.txt"\n\tUser time (seconds): 1.50\n\tSystem time (seconds): 0.25\n'
        "\tElapsed (wall clock) time (h:mm:ss or m:ss): 1:02.50\n\tMaximum resident set size (kbytes): 102400\n"
        "\tFile system inputs: 8\n\tFile system outputs: 16\n\tExit status: 0\n"
    ),
    "info.json": json.dumps(
        {
            "command": "python train.py",
            "execution_summary": {"exit_code": 0, "peak_rss": 5_000_000, "wall_clock_time": 3.5},
        }
    ),
}
"""A file of each format, with rows that hold nothing among them."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_each_format_is_taken_in_as_sampled_and_by_whom(place: Path) -> None:
    done = call("runs", "import", *FILES, "--tag", "batch=1", cwd=place)
    assert (done.returncode, done.stdout) == (0, "")
    assert "align.tsv: 1 run of Snakemake, 1 row without a memory figure skipped" in done.stderr
    assert "trace.txt: 1 run of Nextflow, 2 rows without a memory figure skipped" in done.stderr
    rows: dict[str, dict[str, Any]] = {
        row["measured_by"]: row for row in json.loads(call("runs", "--json", cwd=place).stdout)
    }
    assert {by: row["peaks"]["tree"]["bytes"] for by, row in rows.items()} == {
        "Snakemake": 524 << 20, "Nextflow": 1536 << 20, "sacct": 4_000_000 * 1024, "GNU time": 100 << 20, "con-duct": 5_000_000,
    }  # fmt: skip
    assert {row["peaks"]["tree"]["certainty"] for row in rows.values()} == {"sampled"}
    assert {row["tags"]["batch"] for row in rows.values()} == {"1"}
    assert rows["Snakemake"]["name"] == "align"
    assert (rows["Nextflow"]["tags"]["rule"], rows["Nextflow"]["seconds"]) == ("BWA", 125.0)
    assert rows["Nextflow"]["totals"]["cpu_seconds"] == 187.5
    assert (rows["sacct"]["ended"]["oom_kills"], rows["sacct"]["seconds"]) == (1, 86401.0)
    assert (rows["GNU time"]["command"], rows["GNU time"]["seconds"]) == (["sort", "data.txt"], 62.5)
    assert rows["GNU time"]["totals"]["write_bytes"] == 8192
    again = call("runs", "import", *FILES, "--tag", "batch=1", cwd=place)
    assert "0 runs of sacct, 1 already imported" in again.stderr
    assert "sampled, Snakemake" in call("runs", cwd=place).stdout
    (told,) = json.loads(call("advise", "--where", "by=Snakemake", "--for", "json", cwd=place).stdout)[
        "advice"
    ]
    assert told["guess"]
    assert call("report", rows["sacct"]["path"], cwd=place).returncode == 0


def rows_of(place: Path, *columns: str) -> list[list[Any]]:
    done = call("runs", "--format", "json", "--columns", ",".join(columns), cwd=place)
    return [list(row.values()) for row in json.loads(done.stdout)]


def test_a_task_from_the_cache_is_one_run_in_however_many_traces(tmp_path: Path) -> None:
    (tmp_path / "first.txt").write_text(TRACE + TASK.format(id=5, status="COMPLETED", code=0))
    (tmp_path / "second.txt").write_text(TRACE + "4\ttorn\n" + TASK.format(id=9, status="CACHED", code=0))
    (tmp_path / "third.txt").write_text(TRACE + TASK.format(id=9, status="ABORTED", code="-"))
    done = call("runs", "import", "first.txt", "second.txt", "third.txt", cwd=tmp_path)
    assert (
        "second.txt: 0 runs of Nextflow, 1 already imported, 1 row without a memory figure skipped"
        in done.stderr
    )
    assert sorted(rows_of(tmp_path, "name", "exit", "signal"), key=str) == [
        ["UNZIP", 0, None],
        ["UNZIP", None, 15],
    ]


def test_jobs_that_slurm_ended_or_that_go_on_are_no_jobs_that_needed_no_more(tmp_path: Path) -> None:
    for name in ("week1.txt", "week2.txt"):
        (tmp_path / name).write_text(SACCT)
        told = call("runs", "import", name, cwd=tmp_path).stderr
    assert "0 runs of sacct, 3 already imported, 1 row without a memory figure skipped" in told
    found = sorted(rows_of(tmp_path, "tag.slurm.job", "exit", "signal", "memory", "cpu"), key=str)
    assert found == [
        ["10", 0, None, 4 << 20, 1.04],
        ["7", None, 15, 2 << 20, 3540.04],
        ["8", None, 15, 1 << 20, 1.04],
    ]
    (advice,) = json.loads(call("advise", "--for", "json", cwd=tmp_path).stdout)["advice"]
    assert advice["runs"] == 1


def test_what_has_no_name_is_called_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "sort.tsv").write_text(FILES["align.tsv"])
    (tmp_path / "align.tsv").write_text(FILES["align.tsv"])
    (tmp_path / "extended.tsv").write_text(EXTENDED)
    call("runs", "import", "sort.tsv", "align.tsv", "extended.tsv", cwd=tmp_path)
    found = sorted(rows_of(tmp_path, "name", "tag.wildcards"), key=str)
    assert found == [["align", None], ["one", "{'s': 'a'}"], ["sort", None]]


def test_each_command_of_a_file_ended_in_another_way(tmp_path: Path) -> None:
    def block(command: str, code: int, first: str = "") -> str:
        told = (
            f'{first}\tCommand being timed: "sh -c {command}"\n\tMaximum resident set size (kbytes): 1456\n'
        )
        return f"{told}\tPage size (bytes): 4096\n\tExit status: {code}\n"

    (tmp_path / "log").write_text(
        block("true", 0)
        + block("killed", 0, "Command terminated by signal 9\n")
        + block("false", 1, "Command exited with non-zero status 1\n")
    )
    call("runs", "import", "log", cwd=tmp_path)
    found = sorted(rows_of(tmp_path, "command", "exit", "signal"), key=str)
    assert found == [["sh -c false", 1, None], ["sh -c killed", None, 9], ["sh -c true", 0, None]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["import", "odd.txt"], "is in no format that can be imported"),
        (["import", "absent"], "cannot be read"),
        (["import", "time.txt", "--tag", "x"], "is not KEY=VALUE"),
        (["prune"], "Pass --keep N, --older DURATION"),
        (["prune", "--older", "long"], "is not a duration"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str, place: Path) -> None:
    (place / "odd.txt").write_text("a\tb\n")
    done = call("runs", *words, cwd=place)
    assert done.returncode in (1, 2)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert said in done.stderr


def test_old_runs_are_removed_and_nothing_else(tmp_path: Path) -> None:
    runs = tmp_path / "memwatch-runs"
    for days in range(4):
        path = recorded.short(runs / f"r{days}")
        info = json.loads((path / "run.json").read_text())
        info["started"]["wall"] = time.time() - days * 86400 - 60
        (path / "run.json").write_text(json.dumps(info))
    (runs / "torn").mkdir()
    (runs / "torn/run.json").write_text("{")
    would = call("runs", "prune", "--keep", "1", "--older", "36h", "--dry-run", cwd=tmp_path)
    assert (would.returncode, would.stdout.split()) == (0, ["memwatch-runs/r3", "memwatch-runs/r2"])
    assert "2 runs of 5 would be removed" in would.stderr
    assert len(list(runs.iterdir())) == 5
    done = call("runs", "prune", "--keep", "1", "--older", "36h", cwd=tmp_path)
    assert done.stdout == would.stdout
    assert sorted(path.name for path in runs.iterdir()) == ["r0", "r1", "torn"]
    assert call("runs", "prune", "--keep", "0", cwd=tmp_path).returncode == 0
    assert [path.name for path in runs.iterdir()] == ["torn"]
