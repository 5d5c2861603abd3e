"""A published pipeline, Koverage, with the reads that come with it: the shell changes no output and no exit code.

Needs it installed, with minimap2, samtools, jellyfish and zstd: sh tests/run.sh all.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.wrapped import PROGRAM, environment

KOVERAGE = os.environ.get("OTEL_MEMWATCH_KOVERAGE", "")

pytestmark = [
    pytest.mark.skipif(not KOVERAGE, reason="koverage is not installed: sh tests/run.sh all"),
    pytest.mark.timeout(1800),
]

OF_THE_ENGINE = ("benchmarks", "koverage.log")
"""What the engine says of its own run: times, and what it measured."""


def koverage(place: Path, reads: Path, shells: Path | None) -> tuple[int, dict[str, str]]:
    """Its exit code, and a digest of each file that it has made."""
    place.mkdir()
    variables = environment()
    before = [] if shells is None else [str(shells)]
    variables["PATH"] = os.pathsep.join([*before, str(Path(KOVERAGE).parent), variables["PATH"]])
    data = next(Path(KOVERAGE).parents[1].glob("lib/python*/site-packages/koverage/test_data"))
    done = subprocess.run(
        [
            KOVERAGE, "run", "--reads", str(reads), "--ref", str(data / "ref.fa"),
            "--no-use-conda", "--threads", "2", "--output", "out", "map", "kmer", "--keep-going",
        ],
        cwd=place, env=variables, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    made = {
        str(path.relative_to(place / "out")): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((place / "out").rglob("*"))
        if path.is_file() and path.relative_to(place / "out").parts[0] not in OF_THE_ENGINE
    }
    return done.returncode, made


@pytest.fixture
def shells(tmp_path: Path) -> Path:
    subprocess.run(
        [*PROGRAM, "shell", "--install", "shells"], cwd=tmp_path, env=environment(), check=True, timeout=60
    )
    return tmp_path / "shells"


def test_its_outputs_are_the_same_bytes(tmp_path: Path, shells: Path) -> None:
    reads = next(Path(KOVERAGE).parents[1].glob("lib/python*/site-packages/koverage/test_data/reads"))
    first, again = (koverage(tmp_path / name, reads, None) for name in ("first", "again"))
    recorded = koverage(tmp_path / "recorded", reads, shells)
    assert first[0] == again[0] == recorded[0] == 0
    assert set(first[1]) == set(recorded[1])
    equal = {name for name, digest in first[1].items() if again[1][name] == digest}
    assert {"results/sample_coverage.tsv", "results/all_coverage.tsv"} <= equal
    assert {name: first[1][name] for name in equal} == {name: recorded[1][name] for name in equal}
    runs = [
        json.loads(path.read_text()) for path in (tmp_path / "recorded" / "memwatch-runs").glob("*/run.json")
    ]
    print(f"{len(equal)} of {len(first[1])} files equal without us, {len(runs)} runs")
    assert all(run["state"] == "finished" for run in runs)
    assert {"raw_coverage", "jellyfish_db", "faidx_ref"} <= {run["tags"].get("rule") for run in runs}


def test_it_fails_as_without_us(tmp_path: Path, shells: Path) -> None:
    reads = tmp_path / "reads"
    reads.mkdir()
    for end in ("R1", "R2"):
        (reads / f"torn_{end}.fastq.gz").write_bytes(b"\x1f\x8b\x08\x00 and no more")
    plain, recorded = (
        koverage(tmp_path / "plain", reads, None),
        koverage(tmp_path / "recorded", reads, shells),
    )
    assert plain[0] == recorded[0] != 0
    assert set(plain[1]) == set(recorded[1])
