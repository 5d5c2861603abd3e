"""What a type checker says of a program that uses us: decorated functions keep their types, a wrong keyword fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import otel_memwatch
from otel_memwatch import load_run, operation, watch

@operation
def bare(x: int) -> str: ...

@operation("named", rows=3)
def named(x: int, *, y: bytes = b"") -> list[str]: ...

@operation("tasks")
async def coroutine(x: int) -> float: ...

reveal_type(bare)
reveal_type(named)
reveal_type(coroutine)
with operation("block") as block:
    reveal_type(block)
with watch("runs/a", interval=3) as run:
    reveal_type(run.peak)
reveal_type(load_run().plot())
bare("x")
watch("a", intervall=3)
load_run().plot(darkk=True)
"""


def test_types_reach_the_user(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--allow-empty-bodies", str(file)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=230,
    )
    told = re.findall(r'Revealed type is "(.*)"', done.stdout)
    types = [re.sub(r"\b(builtins|typing)\.", "", text) for text in told]
    assert types == [
        "def (x: int) -> str",
        "def (x: int, *, y: bytes =) -> list[str]",
        "def (x: int) -> Coroutine[Any, Any, float]",
        "otel_memwatch.in_target.operations.api.Operation",
        types[4],
        "otel_memwatch.api.loaded_run.Picture",
    ], done.stdout
    assert "otel_memwatch.model.Peak" in types[4]
    assert types[4].endswith("| None")
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 3, done.stdout
    assert 'Argument 1 to "bare"' in errors[0]
    assert 'Unexpected keyword argument "intervall"' in errors[1]
    assert 'Unexpected keyword argument "darkk"' in errors[2]
