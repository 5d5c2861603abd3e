"""Real Snakemake with the shell that records its rules: figures, exit codes and outputs. Needs it installed: sh tests/run.sh all."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.wrapped import MIB, PROGRAM, environment

SNAKEMAKE = os.environ.get("OTEL_MEMWATCH_SNAKEMAKE", "")

pytestmark = [
    pytest.mark.skipif(not SNAKEMAKE, reason="snakemake is not installed: sh tests/run.sh all"),
    pytest.mark.timeout(900),
]

REFEREE = """
import mmap, os, sys, time
def proportional():
    # Private and shared memory of these processes, each page once, and their page tables: the kernel's own count.
    total = 0
    for pid in [os.getpid(), *children]:
        for line in open(f"/proc/{pid}/smaps_rollup"):
            if line.startswith(("Pss_Anon", "Pss_Shmem")):
                total += int(line.split()[1]) << 10
        for line in open(f"/proc/{pid}/status"):
            if line.startswith("VmPTE"):
                total += int(line.split()[1]) << 10
    return total
children = []
what, size, seconds, into = sys.argv[1], int(sys.argv[2]) << 20, float(sys.argv[3]), sys.argv[4]
if what == "late":
    time.sleep(17)
block = mmap.mmap(-1, size, flags=(mmap.MAP_SHARED if what == "shared" else mmap.MAP_PRIVATE) | mmap.MAP_ANONYMOUS)
for place in range(0, size, 4096):
    block[place] = 1
for _ in range(4 if what == "shared" else 0):
    pid = os.fork()
    if pid == 0:
        for place in range(0, size, 4096):
            block[place]
        time.sleep(60)
    children.append(pid)
time.sleep(seconds)
truth = proportional()
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
open(into, "w").write(str(truth))
"""
RULES = """
rule all:
    input: "late.txt", "shared.txt", "short.txt"
rule late:
    output: "late.txt"
    benchmark: "bench/late.tsv"
    shell: "PYTHON -S referee.py late 1024 2 {output}"
rule shared:
    output: "shared.txt"
    benchmark: "bench/shared.tsv"
    shell: "PYTHON -S referee.py shared 512 2 {output}"
rule short:
    output: "short.txt"
    benchmark: "bench/short.tsv"
    shell: "sleep 0.2; PYTHON -S referee.py plain 256 0.05 {output}"
"""
TUTORIAL = """
SAMPLES = ["A", "B", "C"]
def get_reads(wildcards):
    return f"data/samples/{wildcards.sample}.fastq"
rule all:
    input: "plots/quals.svg"
rule bwa_map:
    input: "data/genome.fa", get_reads
    output: temp("mapped_reads/{sample}.bam")
    params: rg=r"@RG\\\\tID:{sample}\\\\tSM:{sample}"
    log: "logs/bwa_mem/{sample}.log"
    benchmark: "benchmarks/{sample}.tsv"
    threads: 2
    shell: "(cat {input} | sort -k1 | awk '{{print \\"{params.rg}\\", $0}}' > {output}) 2> {log}"
rule samtools_sort:
    input: "mapped_reads/{sample}.bam"
    output: protected("sorted_reads/{sample}.bam")
    shell: "sort -r -T sorted_reads/ {input} > {output}"
rule samtools_index:
    input: "sorted_reads/{sample}.bam"
    output: "sorted_reads/{sample}.bam.bai"
    shell: "cksum < {input} > {output}"
rule bcftools_call:
    input:
        fa="data/genome.fa",
        bam=expand("sorted_reads/{sample}.bam", sample=SAMPLES),
        bai=expand("sorted_reads/{sample}.bam.bai", sample=SAMPLES)
    output: "calls/all.vcf"
    shell: "cat {input.bam} {input.bai} | tee >(wc -l > calls/lines.txt) | md5sum - {input.fa} > {output}; wait"
rule plot_quals:
    input: "calls/all.vcf"
    output: "plots/quals.svg"
    script: "plot.py"
"""
FAILING = """
rule all:
    input: "first.txt", "middle.txt", "unset.txt", "pipe.txt", "fine.txt"
rule first:
    output: "first.txt"
    shell: "exit 7; touch {output}"
rule middle:
    output: "middle.txt"
    shell: "touch {output}; false; echo on"
rule unset:
    output: "unset.txt"
    shell: "echo $nowhere > {output}"
rule pipe:
    output: "pipe.txt"
    shell: "false | cat > {output}"
rule fine:
    output: "fine.txt"
    shell: "echo fine > {output}"
"""


def snakemake(place: Path, *options: str, recorded: bool) -> subprocess.CompletedProcess[str]:
    variables = environment()
    if recorded:
        if not (place / "shells").exists():
            subprocess.run(
                [*PROGRAM, "shell", "--install", "shells"],
                cwd=place,
                env=environment(),
                check=True,
                timeout=60,
            )
        # Not the resource shell_exec: Snakemake puts it unquoted into the scripts of rules with `script:`.
        variables["PATH"] = f"{place}/shells:{variables['PATH']}"
    return subprocess.run(
        [SNAKEMAKE, "-c", "2", *options],
        cwd=place,
        env=variables,
        capture_output=True,
        text=True,
        timeout=800,
    )


def runs(place: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (place / "memwatch-runs").glob("*/run.json")]


def test_figures_of_rules_are_those_of_the_referee(tmp_path: Path) -> None:
    (tmp_path / "referee.py").write_text(REFEREE)
    (tmp_path / "Snakefile").write_text(RULES.replace("PYTHON", sys.executable))
    done = snakemake(tmp_path, recorded=True)
    assert done.returncode == 0, done.stderr
    told = subprocess.run(
        [*PROGRAM, "engine", "snakemake"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert {info["tags"].get("rule") for info in runs(tmp_path)} == {"late", "shared", "short"}
    assert told.stdout.startswith("3 files corrected, 0 left"), told.stdout + told.stderr
    for rule in ("late", "shared", "short"):
        truth = int((tmp_path / f"{rule}.txt").read_text()) / MIB
        head, row = (
            line.split("\t") for line in (tmp_path / "bench" / f"{rule}.tsv").read_text().splitlines()
        )
        figure = float(dict(zip(head, row, strict=True))["max_needed"])
        # The shell around it is part of the rule: it has 2 MiB at most.
        assert truth * 0.99 <= figure <= truth * 1.01 + 2, (rule, truth, figure)
    again = snakemake(tmp_path, "-n", recorded=True)
    assert "Nothing to be done" in again.stdout + again.stderr


def contents(place: Path) -> dict[str, str]:
    """A digest of each file that a workflow has made."""
    return {
        str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(place.rglob("*"))
        if path.is_file()
        and path.relative_to(place).parts[0] not in (".snakemake", "memwatch-runs", "shells", "benchmarks")
    }


def tutorial(place: Path) -> None:
    (place / "data" / "samples").mkdir(parents=True)
    (place / "data" / "genome.fa").write_text("".join(f">{number} ACGT\n" for number in range(2000)))
    for sample in "ABC":
        (place / "data" / "samples" / f"{sample}.fastq").write_text(f"@{sample}\nGATTACA\n+\nIIIIIII\n" * 500)
    (place / "plot.py").write_text(
        "data = open(snakemake.input[0]).read()\nopen(snakemake.output[0], 'w').write(f'<svg>{data}</svg>')\n"
    )
    (place / "Snakefile").write_text(TUTORIAL)


@pytest.mark.parametrize(("workflow", "code"), [("tutorial", 0), ("failing", 1)])
def test_a_workflow_ends_and_makes_what_it_does_without_us(tmp_path: Path, workflow: str, code: int) -> None:
    found = {}
    for name, recorded in (("plain", False), ("recorded", True)):
        place = tmp_path / name
        place.mkdir()
        if workflow == "tutorial":
            tutorial(place)
        else:
            (place / "Snakefile").write_text(FAILING)
        done = snakemake(place, "-k", recorded=recorded)
        found[name] = done.returncode, contents(place)
        assert done.returncode == code, done.stderr
    assert found["plain"] == found["recorded"]
    if workflow == "failing":
        assert [name for name in found["plain"][1] if name.endswith(".txt")] == ["fine.txt"]
        assert len(runs(tmp_path / "recorded")) == 5
    else:
        assert "plots/quals.svg" in found["plain"][1]
        assert len(runs(tmp_path / "recorded")) == 11, "the script too"


def test_none_of_two_hundred_rules_is_lost(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        "rule all:\n    input: expand('out/{n}', n=range(200))\n"
        "rule one:\n    output: 'out/{n}'\n    shell: 'sleep 0.1; echo {wildcards.n} > {output}'\n"
    )
    done = snakemake(tmp_path, "-c", "8", recorded=True)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").iterdir())) == 200
    found = runs(tmp_path)
    assert len(found) == 200
    assert all(run["state"] == "finished" for run in found)
