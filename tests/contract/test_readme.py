"""README says what the program does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from otel_memwatch.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_its_tables_are_those_of_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "tests/readme/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_its_test_command_is_the_one_that_ci_runs() -> None:
    assert "```sh\nsh tests/run.sh\n```" in README


def test_its_pictures_and_links_are_there() -> None:
    """Every relative link leads to a file or a folder of the repository."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", README)
    assert any(link.endswith(".png") for link in links)
    for link in links:
        if link.startswith("otel_memwatch/"):
            # The tests run beside the sources, not in them.
            continue
        assert (ROOT / link).exists(), link


def test_every_command_that_it_shows_exists() -> None:
    shown = set(re.findall(r"otel-memwatch ([a-z]+)", README)) - {"demo"}
    assert shown <= set(COMMANDS)


def test_no_path_of_the_machine_that_made_it() -> None:
    assert not re.search(r"/(home|root|work|tmp)/", README)


def test_its_script_runs(tmp_path: Path) -> None:
    """Outside a run the operations cost nothing and change nothing."""
    shutil.copy(ROOT / "tests/readme/train.py", tmp_path)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
