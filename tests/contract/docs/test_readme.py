"""README and the manual say what the program does, and stay short."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.bench.compare.tables import heat, load, right
from tests.support.documents import DOCUMENTS, OTHERS, ROOT, name

README = (ROOT / "README.md").read_text()


def test_what_is_made_of_the_program_is_up_to_date() -> None:
    """Commands, settings, Python, metrics, the run directory, schemas, and tables of kept results."""
    done = subprocess.run(
        [sys.executable, "tests/readme/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_readme_is_short() -> None:
    """The manual describes the new features."""
    assert len(README.splitlines()) <= 180


def test_its_first_command_is_the_main_job_and_its_second_the_one_that_ci_runs() -> None:
    first, second = re.findall(r"^```sh\n(.*?)```$", README, re.MULTILINE | re.DOTALL)[:2]
    assert first.rstrip().endswith("otel-memwatch wrap -- otel-memwatch demo")
    assert second == "sh tests/run.sh\n"


def links(path):
    """Relative links, each with its heading or ""."""
    return re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#([^)\s]+))?", path.read_text())


@pytest.mark.parametrize("path", [path for path in (*DOCUMENTS, *OTHERS) if links(path)], ids=name)
def test_pictures_and_links_are_there(path) -> None:
    """Every relative link leads to a file or a folder of the repository, and to a heading of it where it names one."""
    found = links(path)
    assert found
    for link, anchor in found:
        target = path.parent / link
        if (ROOT / "otel_memwatch") in (target.resolve(), *target.resolve().parents):
            continue  # the tests run beside the sources, not in them
        assert target.exists(), f"{name(path)}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{name(path)}: {link}#{anchor}"


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as its readers make them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*DOCUMENTS, *OTHERS], ids=name)
def test_no_path_of_the_machine_that_made_it(path) -> None:
    assert not re.search(r"/(home|root|work|tmp)/\w", path.read_text())


def test_its_first_figure_is_that_of_the_kept_results() -> None:
    words = {
        1: "one",
        2: "two",
        3: "three",
        4: "four",
        5: "five",
        6: "six",
        7: "seven",
        8: "eight",
        9: "nine",
    }
    counts = right(load(ROOT / "tests/bench/compare/results", "truth"))
    ours = counts["otel-memwatch"]
    next_best = max(count for tool, count in counts.items() if not tool.startswith("otel-memwatch"))
    user = counts["otel-memwatch, as a user"]
    told = f"within 3 % for **{words[ours]}**, for {words[user]} without a cgroup"
    assert f"{told}; the next best tool for {words[next_best]}" in README


def test_colours_say_how_far_a_figure_is() -> None:
    assert [heat(share, None, None) for share in (1.02, 1.08, 0.6, 5.0, None)] == [
        "near",
        "some",
        "far",
        "lost",
        "nothing",
    ]
    assert heat(0.26, 0.26, 1.34) == "bounded"
    assert heat(0.26, 0.26, 0.9) == "lost"  # bounds that do not hold the truth
