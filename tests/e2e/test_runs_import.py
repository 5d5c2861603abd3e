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
    assert "align.tsv: 1 run of Snakemake, 1 row left out" in done.stderr
    assert "trace.txt: 1 run of Nextflow, 2 rows left out" in done.stderr
    rows: dict[str, dict[str, Any]] = {
        row["measured_by"]: row for row in json.loads(call("runs", "--json", cwd=place).stdout)
    }
    assert {by: row["peaks"]["tree"]["bytes"] for by, row in rows.items()} == {
        "Snakemake": 524 << 20, "Nextflow": 1536 << 20, "sacct": 4_000_000 * 1024, "GNU time": 100 << 20, "con-duct": 5_000_000,
    }  # fmt: skip
    assert {row["peaks"]["tree"]["certainty"] for row in rows.values()} == {"sampled"}
    assert {row["tags"]["batch"] for row in rows.values()} == {"1"}
    assert (rows["Nextflow"]["tags"]["rule"], rows["Nextflow"]["seconds"]) == ("BWA", 125.0)
    assert rows["Nextflow"]["totals"]["cpu_seconds"] == 187.5
    assert (rows["sacct"]["ended"]["oom_kills"], rows["sacct"]["seconds"]) == (1, 86401.0)
    assert (rows["GNU time"]["command"], rows["GNU time"]["seconds"]) == (["sort", "data.txt"], 62.5)
    assert rows["GNU time"]["totals"]["write_bytes"] == 8192
    again = call("runs", "import", *FILES, "--tag", "batch=1", cwd=place)
    assert "0 runs of sacct, 1 known already" in again.stderr
    assert "sampled, Snakemake" in call("runs", cwd=place).stdout
    (told,) = json.loads(call("advise", "--where", "by=Snakemake", "--for", "json", cwd=place).stdout)[
        "advice"
    ]
    assert told["guess"]
    assert call("report", rows["sacct"]["path"], cwd=place).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["import", "odd.txt"], "is in no format that can be imported"),
        (["import", "absent"], "cannot be read"),
        (["import", "time.txt", "--tag", "x"], "is not KEY=VALUE"),
        (["prune"], "Say what is to stay"),
        (["prune", "--older", "long"], "is no duration"),
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
