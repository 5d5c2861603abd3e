"""What the engines around a run say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_memwatch.record.tags import engine_tags, input_bytes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("environ", "tags"),
    [
        (
            {
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NAME": "fit",
                "SLURM_ARRAY_JOB_ID": "6",
                "SLURM_ARRAY_TASK_ID": "1",
            },
            {"slurm.job": "7", "slurm.name": "fit", "slurm.array": "6", "slurm.task": "1"},
        ),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}, {"slurm.job": "7", "attempt": "3"}),
        (
            {"GITHUB_ACTIONS": "true", "GITHUB_JOB": "test", "GITHUB_SHA": "abc", "GITHUB_REF_NAME": "main"},
            {"github.job": "test", "commit": "abc", "branch": "main"},
        ),
        ({"GITHUB_JOB": "not in Actions"}, {}),
        (
            {"GITLAB_CI": "true", "CI_JOB_NAME": "test", "CI_PIPELINE_ID": "9"},
            {"gitlab.job": "test", "gitlab.run": "9"},
        ),
        ({"MLFLOW_EXPERIMENT_ID": "0"}, {"mlflow.experiment": "0"}),
        ({"MLFLOW_EXPERIMENT_NAME": "base", "MLFLOW_EXPERIMENT_ID": "0"}, {"mlflow.experiment": "base"}),
        (
            {"MLFLOW_RUN_ID": "r", "WANDB_RUN_ID": "w", "WANDB_PROJECT": ""},
            {"mlflow.run": "r", "wandb.run": "w"},
        ),
        ({"JOB_COMPLETION_INDEX": "4"}, {"k8s.index": "4"}),
    ],
)
def test_the_environment_of_an_engine_is_read(
    environ: dict[str, str], tags: dict[str, str], tmp_path: Path
) -> None:
    assert engine_tags(environ, tmp_path, {}, 1) == tags


def test_a_task_of_nextflow_is_named_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / ".command.run").write_text(
        "#!/bin/bash\n# NEXTFLOW TASK: NFCORE:ALIGN:BWA (sample 1)\nset -e\n"
    )
    assert engine_tags({}, tmp_path, {}, 1) == {"rule": "BWA", "nextflow.task": "NFCORE:ALIGN:BWA (sample 1)"}


def test_a_job_of_snakemake_is_named_by_the_snakemake_around_it(tmp_path: Path) -> None:
    def process(pid: int, parent: int, *argv: str) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes("\0".join([*argv, ""]).encode())
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 1 1")

    process(30, 20, "bash", "-c", "set -euo pipefail; align")
    process(
        20, 10, "python", "-m", "snakemake", "--target-jobs", "align:sample=a", "--attempt", "2", "--quiet"
    )
    process(10, 1, "slurmstepd")
    assert engine_tags({}, None, {}, 30, proc=tmp_path) == {
        "rule": "align",
        "wildcards": "sample=a",
        "attempt": "2",
    }
    assert engine_tags({}, None, {}, 10, proc=tmp_path) == {}


_LOG = """
[Mon Nov 23 22:27:27 2026]
localrule make_data:
    output: out/1.txt
    jobid: 6
    wildcards: i=1
    resources: tmpdir=/tmp
[Mon Nov 23 22:27:27 2026]
rule make_data:
    output: out/11.txt, out/11.log
    jobid: 4
    wildcards: i=11, kind=a
[Mon Nov 23 22:27:28 2026]
Finished jobid: 6 (Rule: make_data)
localrule sort:
    input: out/1.txt
    output: out/1.sorted
    jobid: 5
    wildcards: i=1
localcheckpoint draw:
    output: fig.txt
    jobid: 9
"""


@pytest.mark.parametrize(
    ("command", "tags"),
    [
        ("seq 9 > out/11.txt", {"rule": "make_data", "wildcards": "i=11,kind=a"}),
        ("sort -n out/1.txt > out/1.sorted", {"rule": "sort", "wildcards": "i=1"}),
        ("cat out/1.txt > other", {}),  # its maker has finished
        ("cat 1.sorted my-fig.txt", {}),
        ("python {place}/.snakemake/scripts/tmp1.draw.py", {"rule": "draw"}),
        ("python {place}/.snakemake/scripts/absent.py", {}),
    ],
)
def test_a_job_of_the_local_executor_is_named_by_its_output_in_the_log(
    command: str, tags: dict[str, str], tmp_path: Path
) -> None:
    for pid, parent, name in ((30, 20, "sh"), (20, 1, "/opt/bin/snakemake")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(f"{name}\0-c\0002\0".encode())
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) S {parent} 1 1")
    for folder in ("log", "scripts"):
        (tmp_path / ".snakemake" / folder).mkdir(parents=True)
    (tmp_path / ".snakemake" / "log" / "2026-11-22T1.snakemake.log").write_text(
        "rule old:\n    output: fig.txt\n"
    )
    (tmp_path / ".snakemake" / "log" / "2026-11-23T1.snakemake.log").write_text(_LOG)
    (tmp_path / ".snakemake" / "scripts" / "tmp1.draw.py").write_text(r"loads(b'\x07fig.txt\x94')")
    argv = ["/bin/bash", "-c", f"set -euo pipefail; {command.format(place=tmp_path)}"]
    assert engine_tags({}, tmp_path, {}, 30, argv=argv, proc=tmp_path) == tags
    assert engine_tags({}, tmp_path / "elsewhere", {}, 30, argv=argv, proc=tmp_path) == {}
    assert engine_tags({}, tmp_path, {}, 1, argv=argv, proc=tmp_path) == {}


def test_a_pod_is_reported_by_the_resource() -> None:
    assert engine_tags({}, None, {"k8s.pod.name": "p", "k8s.job.name": "j"}, 1) == {
        "k8s.pod": "p",
        "k8s.job": "j",
    }


def test_files_among_the_arguments_are_the_input(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 1000)
    (tmp_path / "more").write_bytes(b"x" * 10)
    (tmp_path / "run.py").write_bytes(b"x" * 7)
    argv = ["python", "run.py", "data", "--other=more", "--in", str(tmp_path / "more"), "absent", "", "\0"]
    assert input_bytes(argv, tmp_path) == 1020
    assert input_bytes(["python", "run.py", str(tmp_path)], tmp_path) is None
