"""`--open` opens the page that a command wrote, and nothing else."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support import recorded
from tests.support.wrapped import PROGRAM, environment

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = {
    "--html": ["report", "runs/a", "--html"],
    "--page": ["runs", "runs", "--page"],
    "compare --page": ["compare", "runs/a", "runs/b", "--page"],
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in "ab":
        recorded.short(tmp_path / "runs" / name)
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" >> opened\n')
    browser.chmod(0o755)
    return tmp_path


def run(place: Path, words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    settings = environment(BROWSER=f"{place}/browser %s") | variables
    return subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, env=settings, timeout=60, cwd=place
    )


@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_the_written_page_is_opened(place: Path, words: list[str]) -> None:
    done = run(place, [*words, "a page.html", "--open"])
    assert done.returncode in (0, 1), done.stderr
    assert (place / "opened").read_text() == (place / "a page.html").as_uri() + "\n"


def test_a_browser_that_stays_is_not_waited_for(place: Path) -> None:
    (place / "browser").write_text('#!/bin/sh\nwhile [ ! -e end ]; do sleep 0.1; done\necho "$1" > opened\n')
    try:
        done = run(place, [*COMMANDS["--page"], "a page.html", "--open"])
        assert done.returncode == 0, done.stderr
        assert not (place / "opened").exists()
    finally:
        (place / "end").touch()


@pytest.mark.parametrize("browser", ["", "/absent/browser", "false", "false %s"])
@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_without_a_browser_one_sentence_names_the_page(place: Path, words: list[str], browser: str) -> None:
    (place / "empty").mkdir()
    (place / "empty" / "false").symlink_to("/bin/false")
    variables = {"BROWSER": browser, "PATH": str(place / "empty"), "TERM": "xterm", "DISPLAY": ""}
    done = run(place, [*words, "a page.html", "--open"], **variables)
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr.endswith("otel-memwatch: no browser found; open a page.html in one\n")
    assert "Traceback" not in done.stderr
    assert (place / "a page.html").exists()


@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_without_a_page_there_is_nothing_to_open(place: Path, words: list[str]) -> None:
    done = run(place, [*words[:-1], "--open"])
    assert done.returncode == 2
    assert f"--open opens a page (name its file with {words[-1]})" in done.stderr
    assert not (place / "opened").exists()


def test_an_older_page_is_not_opened(place: Path) -> None:
    """No run matches, so nothing is written."""
    (place / "a page.html").write_text("older")
    done = run(place, ["runs", "runs", "--where", "name=none", "--page", "a page.html", "--open"])
    assert "No matching runs" in done.stderr
    assert (place / "a page.html").read_text() == "older"
    assert not (place / "opened").exists()
