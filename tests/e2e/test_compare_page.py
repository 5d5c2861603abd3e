"""The page of a comparison in a real Chromium: curves, alignment, keyboard, hostile names, secrets, a phone, axe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.accessible import violations
from tests.support.browser import CUT_TABLES, Opened
from tests.support.wrapped import PROGRAM, environment

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
SECRET = "hunter2-zebra"
JOB = """
import sys, time
from otel_memwatch import operation
with operation("load"):
    model = bytearray(30 << 20)
    time.sleep(0.15)
with operation(sys.argv[3]):
    more = bytearray(int(sys.argv[1]) << 20)
    time.sleep(0.25)
"""


RANK = """
import pathlib, sys, time
from otel_memwatch import operation
with operation("load"):
    model = bytearray(30 << 20)
with operation("grow"):
    more = bytearray(int(sys.argv[1]) << 20)
    pathlib.Path(sys.argv[2], sys.argv[1]).touch()
    while len(list(pathlib.Path(sys.argv[2]).iterdir())) < int(sys.argv[3]):  # all ranks have their memory at one time
        time.sleep(0.02)
    time.sleep(0.4)
"""


def run(*words: str, place: Path) -> str:
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, env=environment(), timeout=60, cwd=place
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(SECRET)
    (place / "job.py").write_text(JOB)
    for name, amount in (("base", "20"), ("head", "80")):
        command = [sys.executable, "job.py", amount, SECRET, HOSTILE]
        run("wrap", "--quiet", "--tag", f"key={SECRET}", "--out", name, "--", *command, place=place)
    run("compare", "base", "head", "--page", "page.html", place=place)
    return place


def test_of_several_runs_the_page_names_the_drawn_ones(place: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("compare", "base", "--", "base", "head", "--page", str(page), place=place)
    assert "Drawn are the runs with median memory: base of 1 run, base of 2 runs." in page.read_text()


def test_groups_have_the_curve_of_all_ranks_and_reasons_of_equal_ranks(place: Path, tmp_path: Path) -> None:
    for name, amounts in (("one", (20, 40)), ("two", (50, 70, 60))):
        (tmp_path / f"{name}-ready").mkdir()
        ranks = []
        for rank, amount in enumerate(amounts):
            words = ["--runs", str(tmp_path / name), "--group", name, "--rank", str(rank)]
            ready = [str(amount), str(tmp_path / f"{name}-ready"), str(len(amounts)), SECRET]
            command = [*PROGRAM, "wrap", "--quiet", *words, "--", sys.executable, "-c", RANK, *ready]
            ranks.append(subprocess.Popen(command, cwd=place, env=environment()))
        assert [one.wait(60) for one in ranks] == [0] * len(ranks)
    words = ("compare", str(tmp_path / "one"), str(tmp_path / "two"), "--page", str(tmp_path / "page.html"))
    printed = run(*words, place=place)
    assert re.search(r"\+(5\d|60)\.\d MiB in grow \(operation\), in 2 of 2 ranks", printed), printed
    assert "for 1 rank more, " in printed
    assert "unknown command" not in printed
    text = (tmp_path / "page.html").read_text()
    assert "Curve and figures of a group are those of all its ranks." in text
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])
    assert data["label"] == "memory of all ranks"
    assert max(data["sides"][0]["bytes"]) >= 70 << 20  # more than the largest rank has
    run(*words, "--redact", place=place)
    redacted = (tmp_path / "page.html").read_text()
    assert SECRET not in redacted
    assert "in grow (operation), in 2 of 2 ranks" in redacted


def test_both_curves_share_an_axis_and_can_be_aligned_at_an_operation(chrome: Any, place: Path) -> None:
    opened = Opened(chrome, place / "page.html").wait()
    shown = opened.page
    assert shown.get_by_label("Align the runs").locator("option").all_inner_texts() == [
        "aligned at the start",
        "aligned at load",
        f"aligned at {HOSTILE}",
    ]
    shown.get_by_label("Align the runs").select_option("1")
    shown.locator(".chart").focus()
    shown.keyboard.press("ArrowRight")
    shown.keyboard.press("ArrowRight")
    assert "head" in shown.locator("[aria-live]").first.inner_text()
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.getAttribute('class')") == "scroll"  # the first table
    assert "MiB in </script>" in shown.locator("#why-memory-differs").inner_text()
    assert HOSTILE in shown.locator("#operations").inner_text()
    assert opened.errors == []
    assert opened.requests == [(place / "page.html").as_uri()]
    opened.close()


def test_without_scripts_and_on_a_phone_it_has_all_figures(chrome: Any, place: Path) -> None:
    plain = Opened(chrome, place / "page.html", java_script_enabled=False)
    assert plain.page.locator("#processes tbody tr").count() >= 1
    plain.close()
    opened = Opened(chrome, place / "page.html").wait()
    opened.page.set_viewport_size({"width": 360, "height": 700})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert opened.page.evaluate(CUT_TABLES) == []
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": 720, "height": 1000})
    assert opened.page.locator("figure.paper svg").is_visible()
    assert not opened.page.locator("#charts").is_visible()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 720
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_complaint(chrome: Any, place: Path, scheme: str) -> None:
    opened = Opened(chrome, place / "page.html", color_scheme=scheme).wait()
    assert violations(opened.page) == []
    opened.page.emulate_media(media="print")
    assert violations(opened.page) == []
    opened.close()


@pytest.mark.parametrize("how", ["--redact", "--redact=all"])
def test_a_redacted_page_has_no_secret(place: Path, how: str) -> None:
    run("compare", "base", "head", "--page", "redacted.html", how, place=place)
    text = (place / "redacted.html").read_text()
    assert SECRET not in text
    assert "job.py" not in text
    assert "Redacted" in text
    assert ('"load"' in text) == (how == "--redact")


def test_equal_runs_have_a_page_too(place: Path) -> None:
    run("compare", "base", "base", "--page", "equal.html", place=place)
    text = (place / "equal.html").read_text()
    assert "Why memory differs" not in text
    assert "2 rows without a difference left out." in text
    assert "+0 B" not in text


def test_a_page_needs_runs_on_both_sides(place: Path) -> None:
    run("check", "base", "--save-baseline", "baseline.json", place=place)
    words = [*PROGRAM, "compare", "--baseline", "baseline.json", "head", "--page", "x.html"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60, cwd=place)
    assert done.returncode == 2
    assert "no curves" in done.stderr
    done = subprocess.run(
        [*PROGRAM, "compare", "base", "head", "--page", "missing/x.html"],
        capture_output=True, text=True, env=environment(), timeout=60, cwd=place,
    )  # fmt: skip
    assert "cannot be written" in done.stderr
