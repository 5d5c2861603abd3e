"""Those who are asked for memory understand the advice: Slurm's controller and Snakemake themselves.

Both take long to install and to start: they are asked with MEMWATCH_LONG=1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support import recorded
from tests.support.slurm import controller
from tests.support.wrapped import PROGRAM, environment

if TYPE_CHECKING:
    from pathlib import Path


def needed(program: str) -> None:
    if not os.environ.get("MEMWATCH_LONG"):
        pytest.skip("engines of others are asked by `sh tests/run.sh all`")
    assert shutil.which(program), f"{program} is not installed"


def advice(target: str, place: Path) -> str:
    for number in range(3):
        peaks = {"tree": recorded.peak(100 + number)}
        recorded.record(
            place / f"memwatch-runs/{number}", seconds=2.0, peaks=peaks, totals={"cpu_seconds": 1.0}
        )
    done = subprocess.run(
        [*PROGRAM, "advise", "--for", target],
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_slurm_takes_the_head_of_the_batch_script(tmp_path: Path) -> None:
    needed("slurmctld")
    if os.geteuid() != 0:
        pytest.skip("slurmd runs as root only")
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{advice('slurm', tmp_path)}true\n")
    with controller(tmp_path) as variables:

        def tested() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["sbatch", "--test-only", str(script)],
                env=variables,
                capture_output=True,
                text=True,
                check=False,
            )

        accepted = tested()
        assert accepted.returncode == 0, accepted.stderr
        assert "to start at" in accepted.stderr
        script.write_text(script.read_text().replace("--mem=", "--mem=9999"))
        assert tested().returncode != 0


def test_snakemake_takes_the_directives_of_a_rule(tmp_path: Path) -> None:
    needed("snakemake")
    directives = "".join(
        f"    {line}\n" for line in advice("snakemake", tmp_path).splitlines() if not line.startswith("#")
    )
    (tmp_path / "Snakefile").write_text(
        f'rule one:\n    output: "x.txt"\n{directives}    shell: "touch {{output}}"\n'
    )
    done = subprocess.run(
        ["snakemake", "-n", "-p"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mem_mb=" in done.stdout + done.stderr
