"""A published pipeline, Koverage, with the reads that come with it: the shell changes no output and no exit code.

Needs it installed, with minimap2, samtools and zstd: sh tests/run.sh all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.wrapped import PROGRAM, environment

KOVERAGE = os.environ.get("OTEL_MEMWATCH_KOVERAGE", "")

pytestmark = [
    pytest.mark.skipif(not KOVERAGE, reason="koverage is not installed: sh tests/run.sh all"),
    pytest.mark.timeout(1800),
]

OF_THE_ENGINE = {"benchmarks", "koverage.log"}
"""The engine's report of the run: times, and what it measured."""


def koverage(place: Path, shells: Path | None, *, torn: bool = False) -> tuple[int, dict[str, str]]:
    """Its exit code, and a digest of each file that it has made; with `torn` for a reference that has no index."""
    variables = environment(PYTHONHASHSEED="0")  # its order of samples is that of a set of texts
    before = [] if shells is None else [str(shells)]
    variables["PATH"] = os.pathsep.join([*before, str(Path(KOVERAGE).parent), variables["PATH"]])
    # It writes beside the reference: each has separate data.
    came_with_it = next(Path(KOVERAGE).parents[1].glob("lib/python*/site-packages/koverage/test_data"))
    shutil.copytree(came_with_it / "reads", place / "data" / "reads")
    shutil.copy(came_with_it / "ref.fa", place / "data")
    names = sorted(
        path.name.removesuffix("_R1.fastq.gz") for path in (place / "data" / "reads").glob("*_R1.*")
    )
    (place / "data" / "reads.tsv").write_text(
        "".join(
            "\t".join([name, *(f"data/reads/{name}_R{end}.fastq.gz" for end in "12"), "none\n"])
            for name in names
        )
    )
    if torn:
        (place / "data" / "ref.fa").write_text(">lines of different lengths\nACGT\nAC\nACGTACGT\n")
    done = subprocess.run(
        [
            KOVERAGE, "run", "--reads", "data/reads.tsv", "--ref", "data/ref.fa", "--output", "out",
            "--no-use-conda", "--threads", "2", "--keep-going", "map",
        ],
        cwd=place, env=variables, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    made = {
        str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("data", "out")
        for path in sorted((place / folder).rglob("*"))
        if path.is_file() and not set(path.relative_to(place).parts) & OF_THE_ENGINE
    }
    return done.returncode, made


@pytest.fixture
def shells(tmp_path: Path) -> Path:
    subprocess.run(
        [*PROGRAM, "shell", "--install", "shells"], cwd=tmp_path, env=environment(), check=True, timeout=60
    )
    return tmp_path / "shells"


def test_its_outputs_are_the_same_bytes(tmp_path: Path, shells: Path) -> None:
    first, again = (koverage(tmp_path / name, None) for name in ("first", "again"))
    recorded = koverage(tmp_path / "recorded", shells)
    assert first[0] == again[0] == recorded[0] == 0
    assert set(first[1]) == set(recorded[1])
    equal = {name for name, digest in first[1].items() if again[1][name] == digest}
    assert {f"out/results/{kind}_coverage.tsv" for kind in ("sample", "all")} | {"data/ref.fa.idx"} <= equal
    assert {name: first[1][name] for name in equal} == {name: recorded[1][name] for name in equal}
    runs = [
        json.loads(path.read_text()) for path in (tmp_path / "recorded" / "memwatch-runs").glob("*/run.json")
    ]
    print(f"{len(equal)} of {len(first[1])} files are the same in two runs without us; {len(runs)} runs")
    assert all(run["state"] == "finished" and run["exit"]["exit_code"] == 0 for run in runs)
    measured_by_it = list((tmp_path / "recorded" / "out" / "benchmarks").iterdir())
    assert len(runs) >= len(measured_by_it) > 5


def test_it_fails_as_without_us(tmp_path: Path, shells: Path) -> None:
    plain = koverage(tmp_path / "plain", None, torn=True)
    recorded = koverage(tmp_path / "recorded", shells, torn=True)
    assert plain[0] == recorded[0] != 0
    assert set(plain[1]) == set(recorded[1])
