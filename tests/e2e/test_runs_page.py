"""The page of many runs in a real Chromium: charts, a chosen run, the table, hostile names, a phone."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import recorded
from tests.support.accessible import violations
from tests.support.browser import CUT_TABLES, Opened
from tests.support.wrapped import PROGRAM, environment

HOSTILE = "</script><script>alert(1)</script><!--<script>\u2028<img src=x onerror=alert(2)>$&`'\""


def repository(place: Path) -> str:
    """A repository with one commit whose message is hostile and whose configuration names programs; return the commit."""
    program = f"#!/bin/sh\ntouch {place}/started\n"
    for name in ("monitor", "signature"):
        (place / name).write_text(program)
        (place / name).chmod(0o755)

    def git(*words: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", *names, *words], cwd=place, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", f"{HOSTILE} subject\n\nbody")
    git("config", "core.fsmonitor", f"{place}/monitor")
    git("config", "gpg.program", f"{place}/signature")
    git("config", "log.showSignature", "true")
    return git("rev-parse", "HEAD").strip()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    commit = repository(place)
    for number in range(6):
        run = place / "runs" / f"r{number}"
        recorded.short(run)
        document = json.loads((run / "run.json").read_text())
        document["name"] = HOSTILE if number % 2 else "javascript:alert(3)"
        document["tags"] = {HOSTILE: HOSTILE}
        document["vcs"] = {
            "vcs.ref.head.revision": commit if number == 5 else HOSTILE,
            "vcs.ref.head.name": HOSTILE,
        }
        document["started"]["wall"] += 3600 * number
        document["ended"]["wall"] += 3600 * number
        (run / "run.json").write_text(json.dumps(document))
    (place / "runs/r5/report.html").write_text("<title>five</title>")
    command = [*PROGRAM, "runs", str(place / "runs"), "--page", str(place / "all.html")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, cwd=place)
    assert done.returncode == 0, done.stderr
    assert not (place / "started").exists()
    return place / "all.html"


def test_the_report_of_a_directory_of_runs_is_the_same_page(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    command = [*PROGRAM, "report", str(page.parent / "runs"), "--html", str(file)]
    for code in (0, 2):  # the second time the file exists
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
        assert done.returncode == code, done.stderr
    assert "<h1>6 runs" in file.read_text()


def test_a_directory_of_several_groups_and_a_broken_run_has_a_page(tmp_path: Path) -> None:
    for number, group in enumerate("aab"):
        recorded.short(tmp_path / "runs" / f"r{number}")
        path = tmp_path / "runs" / f"r{number}" / "run.json"
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "group": {"group": group, "rank": number}})
        )
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")
    file = tmp_path / "report.html"
    command = [*PROGRAM, "report", str(tmp_path / "runs"), "--html", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr
    assert "<h1>4 runs" in file.read_text()
    assert "broken" in file.read_text()


@pytest.mark.parametrize(
    ("directory", "file", "message"),
    [
        ("empty", "page.html", "There is no run below "),
        ("absent", "page.html", "There is no directory "),
        ("runs", "absent/page.html", "cannot be written: No such file or directory."),
        ("runs", "empty", "is a directory"),
    ],
)
def test_a_page_that_cannot_be_made_is_an_error(
    page: Path, tmp_path: Path, directory: str, file: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "runs").symlink_to(page.parent / "runs")
    command = [*PROGRAM, "runs", str(tmp_path / directory), "--page", str(tmp_path / file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_chosen_point_shows_its_run_with_a_link(chrome: Any, page: Path) -> None:
    opened = Opened(chrome, page).wait()
    shown = opened.page
    assert shown.locator("h3").all_inner_texts() == [
        HOSTILE.replace("\u2028", "\\u2028"),
        "javascript:alert(3)",
    ]
    chart = shown.locator(".chart").first
    chart.focus()
    shown.keyboard.press("ArrowRight")
    assert chart.locator("a").get_attribute("href") == "./runs/r5/report.html"
    assert " subject" in chart.locator(".facts").inner_text()
    shown.get_by_label("Filter runs").fill("img src=x onerror=alert(2)>$&`'\" subject")
    assert shown.locator("#runs tbody tr").count() == 1
    shown.get_by_label("Filter runs").fill("r3")
    assert shown.locator("#runs tbody tr").count() == 1
    assert shown.locator("#runs tbody td").first.inner_text() == "r3"  # without the directory of all runs
    assert opened.errors == []
    assert opened.requests == [page.as_uri()]
    chart.locator("a").click()
    assert shown.title() == "five"
    opened.close()


def test_it_fits_a_phone_and_says_the_figures_without_scripts(chrome: Any, page: Path) -> None:
    opened = Opened(chrome, page).wait()
    opened.page.set_viewport_size({"width": 360, "height": 700})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.close()
    plain = Opened(chrome, page, java_script_enabled=False)
    assert plain.page.locator("#runs tbody tr").count() == 6
    plain.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_complaint(chrome: Any, page: Path, scheme: str) -> None:
    opened = Opened(chrome, page, color_scheme=scheme).wait()
    opened.page.locator(".chart").first.focus()
    opened.page.keyboard.press("ArrowRight")
    assert violations(opened.page) == []
    opened.page.set_viewport_size({"width": 360, "height": 700})
    assert violations(opened.page) == []
    opened.page.emulate_media(media="print")
    assert violations(opened.page) == []
    opened.close()


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 24 runs whose memory changes after each six; the seventh has a page, the last one failed."""
    place = tmp_path_factory.mktemp("steps")
    for number in range(24):
        run = place / "runs" / f"r{number:02}"
        recorded.short(run)
        document = json.loads((run / "run.json").read_text())
        document["name"] = "job"
        for moment in ("started", "ended"):
            document[moment]["wall"] += 3600 * number
        document["peaks"]["tree"] = recorded.peak((100, 110, 90, 130)[number // 6])
        if number == 23:
            document["exit"] |= {"exit_code": 1, "reason": "exit code 1"}
        (run / "run.json").write_text(json.dumps(document))
    (place / "runs/r06/report.html").write_text("<title>six</title>")
    file = place / "all.html"
    command = [*PROGRAM, "runs", str(place / "runs"), "--page", str(file)]
    subprocess.run(command, check=True, capture_output=True, env=environment(), timeout=60)
    return file


def test_a_step_is_marked_and_links_to_its_run(chrome: Any, stepped: Path) -> None:
    opened = Opened(chrome, stepped).wait()
    assert "changes +10.0 MiB (+10.0 %)" in opened.page.locator(".chart").first.inner_text()
    opened.page.locator("#changes").get_by_role("link", name="r06").click()
    assert opened.page.title() == "six"
    assert opened.errors == []
    opened.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_labels_of_changes_do_not_overlap(chrome: Any, stepped: Path, width: int) -> None:
    opened = Opened(chrome, stepped)
    opened.page.set_viewport_size({"width": width, "height": 700})
    opened.wait()
    opened.page.wait_for_function("memwatch.charts.length")
    labels = opened.page.evaluate("memwatch.cards[0].changes")
    plot = opened.page.evaluate("memwatch.charts[0].over.clientWidth")
    assert len(labels) == 3
    for one in labels:
        assert 0 <= one["begin"] < one["end"] <= plot + 1
    for one, other in itertools.combinations(labels, 2):
        assert one["row"] != other["row"] or one["end"] <= other["begin"] or other["end"] <= one["begin"]
    opened.close()


def test_the_table_is_sorted_and_a_run_chosen_by_keyboard(chrome: Any, stepped: Path) -> None:
    opened = Opened(chrome, stepped).wait()
    shown = opened.page
    keys = shown.keyboard
    first = shown.locator("#runs tbody td").first
    shown.get_by_label("Filter runs").focus()
    keys.press("Tab")
    region = shown.get_by_role("region", name="Runs", exact=True)
    assert region.evaluate("(one) => one === document.activeElement")  # it scrolls by keyboard
    for _ in range(5):
        keys.press("Tab")
    orders = []
    for _ in range(2):
        keys.press("Enter")
        orders.append((shown.locator("#runs th[aria-sort]").get_attribute("aria-sort"), first.inner_text()))
    assert shown.locator("#runs th[aria-sort]").inner_text().startswith("memory")
    # Equal runs keep their order, the oldest first.
    assert orders == [("descending", "r18"), ("ascending", "r12")]
    keys.press("Shift+Tab")
    keys.press("Shift+Tab")
    keys.press("Space")
    assert shown.locator("#runs th[aria-sort]").inner_text().startswith("started")
    assert first.inner_text() == "r00"
    chart = shown.locator(".chart").first
    chart.focus()
    for key in ("ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowRight"):
        keys.press(key)
    assert chart.locator(".facts dd").first.inner_text().endswith("r22")
    assert "memory 130.0 MiB" in shown.locator("[aria-live]").first.inner_text()
    assert opened.errors == []
    opened.close()


def test_no_table_is_cut_on_a_phone(chrome: Any, stepped: Path) -> None:
    opened = Opened(chrome, stepped)
    opened.page.set_viewport_size({"width": 360, "height": 700})
    opened.wait()
    assert opened.page.evaluate(CUT_TABLES) == []
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_charts_are_printed_within_the_paper(chrome: Any, stepped: Path, scheme: str) -> None:
    opened = Opened(chrome, stepped, color_scheme=scheme).wait()
    shown = opened.page
    shown.emulate_media(media="print")
    shown.set_viewport_size({"width": 720, "height": 1000})
    assert shown.locator(".many canvas").first.is_visible()
    assert not shown.get_by_label("Filter runs").is_visible()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 720
    # The step's colour is that of light paper.
    colours = "(one) => [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data].join()"
    assert ",179,49,11,255," in shown.locator(".many canvas").first.evaluate(colours)
    assert shown.pdf()
    opened.close()
