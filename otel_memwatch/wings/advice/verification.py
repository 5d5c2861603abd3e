"""Test an advice: run the command once with the advised limit, and once with 5 % less."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from otel_memwatch.errors import RunError
from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.record.open import read_info
from otel_memwatch.record.run_info_schema import RunInfo
from otel_memwatch.runtime import own_python
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import command_line, duration
from otel_memwatch.wings.advice.recommendation import mebibytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.wings.advice.recommendation import Advice
    from otel_memwatch.wings.index.indexed_run import IndexedRun

LESS = 0.95


def verify(advice: Advice, row: IndexedRun) -> Iterator[str]:
    """Yield a line about each of two runs of the command of `row`, in the directory of its run.

    The command runs twice more, with all its effects, so only an explicit request runs it. Raises `RunError` if `wrap` did
    not start the command.
    """
    assert advice.memory is not None
    if not row.command or row.mode != "wrap":
        raise RunError(f"{row.path} cannot be repeated: wrap did not start its command.")
    yield f"verifying with: {command_line(row.command)}"
    for share, what in ((1.0, "as advised"), (LESS, "5 % less")):
        limit = mebibytes(advice.memory * share)
        yield f"  {limit} MiB ({what}): {_tried(row, limit)}"


def _tried(row: IndexedRun, limit: int) -> str:
    with tempfile.TemporaryDirectory(prefix="memwatch-verify-") as folder:
        out = f"{folder}/run"
        options = ["--quiet", "--no-plot", "--no-report", f"--limit={limit}MiB", f"--out={out}"]
        argv = own_python.command_line("wrap", *options, "--", *row.command)
        done = subprocess.run(argv, cwd=row.cwd or os.curdir, check=False)
        try:
            info = RunInfo.of(read_info(Path(out) / RUN_FILE))
        except RunError:
            return f"did not start (exit code {done.returncode})"
        ended, started = info.ended.monotonic, info.started.monotonic
        seconds = f" in {duration(ended - started)}" if ended and started else ""
        if info.exit.oom_kills:
            return f"killed: needs more{seconds}"
        passed = "passes" if done.returncode == 0 else f"fails: {json.dumps(info.exit.reason)}"
        usual = f" (usually {duration(row.seconds)})" if row.seconds else ""
        return f"{passed}{seconds}{usual}"
