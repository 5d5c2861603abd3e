"""Every example of README and the manual runs: page by page, its blocks one after the other in a separate folder.

What a block that cannot be run says in a comment above it is judged by readers; `MEMWATCH_LONG=1` also runs those that take long.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests.support.documents import DOCUMENTS, ROOT, Block, blocks, name
from tests.support.mutations import LONG
from tests.support.otlp_sink import OtlpSink
from tests.support.wrapped import environment

PROGRAMS = ROOT / "tests/programs/docs"
RUN = ("sh", "python", "ipython")
PAGES = [path for path in DOCUMENTS if any(block.language in RUN and block.is_run for block in blocks(path))]


@pytest.fixture
def endpoint() -> Iterator[str]:
    """What answers where a page says `collector`."""
    sink = OtlpSink()
    yield sink.url
    sink.close()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_runs(path: Path, tmp_path: Path, endpoint: str) -> None:
    place = tmp_path / "place"
    shutil.copytree(PROGRAMS, place)
    shown = [block for block in blocks(path) if block.is_run or (LONG and block.note.startswith("long: "))]
    for block in shown:
        if file := named(block):
            (place / file).write_text(block.text)
    running = [block for block in shown if block.language in RUN and not named(block)]
    assert running
    for number, block in enumerate(running):
        run(block, number, place, endpoint, path)


def named(block: Block) -> str | None:
    """The file that a block is shown as, by its first line."""
    first = block.text.split("\n", 1)[0]
    return first.removeprefix("# ") if first.startswith("# ") and first.endswith((".py", ".toml")) else None


def run(block: Block, number: int, place: Path, endpoint: str, page: Path) -> None:
    interpreter, ending = {
        "sh": (["bash", "-eu"], "sh"),
        "python": ([sys.executable], "py"),
        "ipython": ([sys.executable, "-m", "IPython", "--no-banner"], "ipy"),
    }[block.language]
    script = place / f"block{number}.{ending}"
    script.write_text(locally(block.text, endpoint))
    argv = [*interpreter, str(script)]
    programs = Path(sys.executable).parent
    variables = environment(
        PATH=f"{programs}:{os.environ['PATH']}",
        PYTHONPATH=f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        OTEL_MEMWATCH_LIMIT_FALLBACK="rlimit",  # where there can be no group of the run's own
        OTEL_MEMWATCH_METRIC_INTERVAL="1",
    )
    done = subprocess.run(argv, cwd=place, env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{name(page)}:{block.line}\n{block.text}\n{done.stdout}\n{done.stderr}"


def locally(text: str, endpoint: str) -> str:
    """Addresses and folders that only an example has, as they are here."""
    return (
        text.replace("http://collector:4318", endpoint)
        .replace("--prometheus 9464", "--prometheus 0")
        .replace(" /scratch", " .")
    )


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if blocks(path)], ids=name)
def test_data_in_blocks_can_be_read(path: Path) -> None:
    readers = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
    shown = blocks(path)
    assert shown
    for block in shown:
        if block.language in readers:
            readers[block.language](block.text)
        if block.language == "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
        assert block.language in {"sh", "python", "ipython", "json", "toml", "yaml", "text", ""}, (
            f"{name(path)}:{block.line}"
        )


@pytest.mark.parametrize("example", sorted((ROOT / "docs/examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_has_a_heading_of_one_sentence_and_a_program(example: Path) -> None:
    tree = ast.parse(example.read_text())
    heading = ast.get_docstring(tree) or ""
    assert re.fullmatch(r"\S.{10,}\.", heading), heading
    assert len(tree.body) > 1
