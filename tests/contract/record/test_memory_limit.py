"""Records made to fill the memory are read within a limited address space."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.run_directory import MIB, PID
from tests.support.sound_run import sound


def within(mib: int, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program whose address space is limited."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB)),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )


REPORT = """
    import io, sys
    from otel_memwatch.run import load
    from otel_memwatch import reports
    from otel_memwatch.errors import MemwatchError
    try:
        for name in ("text", "json", "otlp-traces"):
            reports.render(name, load(sys.argv[1]), io.BytesIO())
    except MemwatchError as error:
        print("told:", error)
    print("done")
"""


@pytest.mark.parametrize(
    "filling",
    [
        "one line",
        "many columns",
        *(
            pytest.param(filling, marks=pytest.mark.thorough)
            for filling in ("nesting", "huge numbers", "zeros")
        ),
    ],
)
def test_files_made_to_fill_the_memory(tmp_path: Path, filling: str) -> None:
    """100 MB of damage are read within 700 MB of address space, most of which is libraries."""
    run = sound(tmp_path / "run", state="running")
    with (run.path / "samples.jsonl").open("ab") as file:
        if filling == "one line":
            for _ in range(100):
                file.write(b"1," * (MIB // 2))
        elif filling == "nesting":
            for _ in range(20):
                file.write(b"[" * MIB + b"\n")
        elif filling == "many columns":
            entry = b'{"metric":"x","unit":"By","attributes":{},"period":0},'
            file.write(b'{"schema":1,"columns":[' + entry * 120_000 + b"{}]}\n")
        elif filling == "huge numbers":
            for _ in range(20):
                file.write(b"[" + b"9" * 400_000 + b"]\n")
        else:
            file.truncate(100 * MIB)
    with (run.path / f"operations-{PID}.jsonl").open("ab") as file:
        for _ in range(60):
            file.write(b"\xff" * MIB)
    done = within(700, REPORT, str(run.path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("done\n")
