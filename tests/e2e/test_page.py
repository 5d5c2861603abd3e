"""The page of a run in a real Chromium: its figures, what it does with hostile names, where no script runs, saved again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.model import Peak
from otel_memwatch.reports import write
from otel_memwatch.run import load
from otel_memwatch.text import change, duration, peak_figure, size
from tests.support import recorded
from tests.support.accessible import violations
from tests.support.browser import CUT_TABLES, Opened
from tests.support.wrapped import PROGRAM, environment, rendered

HOSTILE = "</script><script>alert(1)</script><!--<script>\u2028<img src=x onerror=alert(2)>$&`'\"\x1b[31m"

PROGRAM_WITH_WORKERS = """
import multiprocessing, sys, time
from otel_memwatch import operation

def work(number):
    block = bytearray((20 + number * 10) << 20)
    time.sleep(0.6)

if __name__ == "__main__":
    workers = [multiprocessing.Process(target=work, args=(number,)) for number in range(3)]
    with operation(sys.argv[1], attributes={"note": sys.argv[1]}):
        for worker in workers:
            worker.start()
        for number in range(15):
            with operation("batch"):
                block = bytearray(30 << 20)
                time.sleep(0.03)
        for worker in workers:
            worker.join()
"""


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of workers and operations whose names want to be markup; its page was made at its end."""
    place = tmp_path_factory.mktemp("page")
    script = place / "<b>&amp;work.py"
    script.write_text(textwrap.dedent(PROGRAM_WITH_WORKERS))
    command = [*PROGRAM, "wrap", "--out", str(place / "run"), "--", sys.executable, str(script), HOSTILE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(place / "run" / "report.html") in done.stderr or "report.html" in done.stderr
    rendered(place / "run", "report.html")
    return place / "run"


def document(path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*PROGRAM, "report", str(path), "--json"], capture_output=True, env=environment(), check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_figures_are_those_of_the_contract(chrome: Any, run_directory: Path) -> None:
    """Peaks, operations and processes: byte for byte, and in the words that the reports use."""
    told = document(run_directory)
    opened = Opened(chrome, run_directory / "report.html").wait()
    page = opened.page
    for name in ("tree", "process"):
        card = page.locator(f'[data-figure="{name}"]')
        peak = told["peaks"][name]
        assert int(card.get_attribute("data-bytes")) == peak["bytes"]
        assert card.get_attribute("data-high") == (None if peak["high"] is None else str(peak["high"]))
    assert peak_figure(Peak.from_json(told["peaks"]["tree"])) in page.locator("h1").inner_text()
    data = json.loads(page.locator("#data").text_content())
    rows = data["operations"]["rows"]
    for row, operation in zip(rows, told["operations"], strict=True):
        assert [row["start"], row["seconds"], row["pid"]] == [
            operation[k] for k in ("start", "seconds", "pid")
        ]
        for key, name in (("peak", "peak"), ("tree", "tree_peak")):
            peak = operation[name]
            assert row.get(key) == (peak and [peak[k] for k in ("bytes", "certainty", "low", "high")])
    processes = {row["pid"]: row for row in data["processes"]["rows"]}
    assert len(processes) == len(told["processes"])
    for process in told["processes"]:
        peak = process["peak"]
        row = processes[process["pid"]]
        assert row.get("peak") == (peak and [peak[k] for k in ("bytes", "certainty", "low", "high")])
        assert row.get("cpu") == process["cpu_seconds"]
    page.get_by_role("button", name="Group by name").click()
    shown = page.locator("#operations tbody tr[data-tree-bytes]")
    assert shown.count() == len(told["operations"])
    assert sorted(int(one.get_attribute("data-tree-bytes")) for one in shown.all()) == sorted(
        one["tree_peak"]["bytes"] for one in told["operations"]
    )
    top = max(v for v in values(data["memory"][0]["high"]) if v is not None)
    error = max(told["peaks"]["tree"]["high"] - told["peaks"]["tree"]["low"], 1 << 20)
    assert abs(top - told["peaks"]["tree"]["bytes"]) <= error
    assert opened.errors == []
    assert opened.requests == [(run_directory / "report.html").as_uri()]
    opened.close()


def test_whose_the_memory_was_is_drawn_in_steps(chrome: Any, tmp_path: Path) -> None:
    """As the memory above it: what was read at a tick is that of the whole time since the tick before. Over a hole it holds."""
    ticks = [
        (t, round((20 + (100 if 2.75 < t < 6.5 else 0)) * recorded.MIB))
        for t in (0.5, 1.5, 2.5, 3.5, 5.5, 6.5, 7.5)
    ]
    known = {
        "pid": 201,
        "start": 2.8,
        "command": "step",
        "argv": ["step"],
        "ppid": 100,
        "rss": 100 * recorded.MIB,
    }
    target = {"pid": 100, "start": 0.0, "command": "sh", "argv": ["sh"], "rss": 20 * recorded.MIB}
    path = recorded.record(
        tmp_path / "run",
        seconds=8.0,
        interval=0.5,
        series=[recorded.TREE, recorded.MAIN],
        ticks=[(time, total, 20 * recorded.MIB) for time, total in ticks],
        processes=[
            {"event": "seen", "time": 0.5, **target},
            {"event": "seen", "time": 3.5, **known},
            {"event": "exit", "time": 6.2, **known, "peak": 100 * recorded.MIB, "exit_code": 0},
            {"event": "exit", "time": 8.0, **target, "peak": 20 * recorded.MIB, "exit_code": 0},
        ],
    )
    opened = Opened(chrome, write("html", load(path), tmp_path / "page.html")).wait()
    chart = opened.page.locator(".chart", has=opened.page.get_by_role("heading", name="Processes"))
    over = chart.locator(".u-over")
    box = over.bounding_box()

    def under(seconds: float) -> str:
        over.hover(position={"x": box["width"] * seconds / 8.0, "y": box["height"] / 2})
        return str(chart.locator("li", has_text="step").locator(".value").inner_text())

    assert [under(t) for t in (1.0, 2.4, 2.6, 3.4, 4.0, 5.4, 5.6, 6.4, 6.6)] == [
        "0 B", "0 B", "100.0 MiB", "100.0 MiB", "100.0 MiB", "100.0 MiB", "0 B", "0 B", "0 B",
    ]  # fmt: skip
    assert opened.errors == []
    opened.close()


def values(column: dict[str, Any]) -> list[int | None]:
    level, found = 0, []
    for step in column["steps"]:
        level += step or 0
        found.append(None if step is None else level * column["unit"])
    return found


def test_the_script_words_figures_as_the_reports_do(chrome: Any, run_directory: Path) -> None:
    kib = 1024
    amounts = [
        0,
        1,
        1023,
        kib,
        1536,
        1048063,
        1048575,
        1 << 20,
        525861683,
        (1 << 30) - 1,
        1 << 30,
        5 << 40,
        123456789,
    ]
    # Halves: Python rounds to the even digit.
    amounts += [number * 64 * kib for number in range(1, 400, 3)] + [
        (number << 30) // 16 for number in range(1, 200, 7)
    ]
    times = [
        0.0,
        0.0000123,
        0.0009,
        0.001125,
        0.00999,
        0.0123,
        0.0125,
        0.0625,
        0.9994,
        0.9996,
        1.0,
        1.125,
        9.999,
        12.25,
        12.34,
    ]
    times += [59.94, 59.96, 61, 90.5, 91.5, 3599.6, 7260, 7290, 90000, 91800, 200000]
    opened = Opened(chrome, run_directory / "report.html").wait()
    assert opened.page.evaluate("(v) => v.map(memwatch.size)", amounts) == [size(v) for v in amounts]
    assert opened.page.evaluate("(v) => v.map(memwatch.change)", amounts) == [change(v) for v in amounts]
    assert opened.page.evaluate("(v) => v.map(memwatch.duration)", times) == [duration(v) for v in times]
    opened.close()


def test_hostile_names_are_shown_and_run_nothing(chrome: Any, run_directory: Path) -> None:
    for javascript in (True, False):
        opened = Opened(chrome, run_directory / "report.html", java_script_enabled=javascript)
        if javascript:
            opened.wait()
        page = opened.page
        assert page.locator("script").count() == 4
        assert page.locator("img, iframe, b, a, link, [onerror]").count() == 0
        words = page.locator("#operations").inner_text()
        assert "</script><script>alert(1)</script><!--<script>" in words
        assert "<b>&amp;work.py" in page.locator("body").inner_text()
        assert opened.errors == []
        opened.close()


def test_megabytes_of_names_and_arguments_make_no_large_page(tmp_path: Path) -> None:
    long = HOSTILE + "x" * (1 << 20)
    path = recorded.nested(tmp_path / "run")
    info = json.loads((path / "run.json").read_text())
    info["command"] = ["python", *[long] * 3]
    info["marks"] = [{"time": None, "text": long[: 1 << 18]}] * 40
    (path / "run.json").write_text(json.dumps(info))
    for file in path.glob("operations-*.jsonl"):
        file.write_text(file.read_text().replace('"name":"', f'"name":"{"y" * 100_000}'))
    page = write("html", load(path), tmp_path / "page.html")
    assert page.stat().st_size < 1 << 20


def test_zoom_filters_the_tables_and_keys_move(chrome: Any, run_directory: Path) -> None:
    opened = Opened(chrome, run_directory / "report.html").wait()
    page = opened.page
    whole = page.evaluate("memwatch.view()")
    page.get_by_role("button", name="Group by name").click()
    page.locator("#operations tbody button.name").nth(3).click()
    zoomed = page.evaluate("memwatch.view()")
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    assert "note=" not in page.locator("#operations .detail").inner_text()
    page.locator(".charts").focus()
    for key, check in (
        ("+", lambda now, then: now[1] - now[0] < then[1] - then[0]),
        ("0", lambda now, _: now == whole),
    ):
        then = page.evaluate("memwatch.view()")
        page.keyboard.press(key)
        assert check(page.evaluate("memwatch.view()"), then)
    page.keyboard.press("p")
    page.locator(".quiet-voice", has_text="needed").wait_for(state="attached")
    assert opened.errors == []
    opened.close()


def test_where_no_script_may_run_words_and_picture_stand(
    chrome: Any, run_directory: Path, tmp_path: Path
) -> None:
    """As a CI server shows what a build left behind: neither scripts nor styles."""
    context = chrome.new_context()
    page = context.new_page()
    policy = "sandbox; default-src 'none'; img-src 'self'; style-src 'self'"
    body = (run_directory / "report.html").read_bytes()
    page.route(
        "http://ci.example/**",
        lambda route: route.fulfill(
            body=body, headers={"content-security-policy": policy, "content-type": "text/html"}
        ),
    )
    page.goto("http://ci.example/report.html")
    assert page.locator("figure svg path").count() > 3
    assert page.locator("figure svg").bounding_box()["height"] > 100
    assert re.search(r"needed (exactly )?[\d.]+", page.locator("h1").inner_text())
    assert page.locator("#operations tr").count() > 5
    assert page.locator("#charts canvas").count() == 0
    context.close()


def test_a_page_that_was_saved_after_it_had_run_opens_again(
    chrome: Any, run_directory: Path, tmp_path: Path
) -> None:
    opened = Opened(chrome, run_directory / "report.html").wait()
    canvases = opened.page.locator("canvas").count()
    saved = tmp_path / "saved.html"
    saved.write_text(
        "<!DOCTYPE html>"
        + opened.page.evaluate("document.documentElement.outerHTML").replace(" data-ready", ""),
        "utf-8",
    )
    opened.close()
    again = Opened(chrome, saved).wait()
    assert again.page.locator("canvas").count() == canvases > 2
    # What uPlot had set on elements is written as attributes now, which the policy forbids: they are not needed.
    assert [error for error in again.errors if "Content Security Policy" not in error] == []
    again.close()


@pytest.mark.parametrize("scene", ["short", "workers", "nested", "gpus"])
def test_every_kind_of_run_fits_on_a_phone_and_on_paper(chrome: Any, scene: str, tmp_path: Path) -> None:
    page = write("html", load(getattr(recorded, scene)(tmp_path / scene)), tmp_path / "page.html")
    opened = Opened(
        chrome,
        page,
        color_scheme="dark",
        is_mobile=True,
        has_touch=True,
        screen={"width": 360, "height": 740},
    ).wait()
    opened.page.set_viewport_size({"width": 360, "height": 740})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert opened.page.evaluate(CUT_TABLES) == []
    assert violations(opened.page) == []
    opened.page.emulate_media(media="print")
    assert opened.page.locator("figure svg").is_visible()
    assert not opened.page.locator("#charts").is_visible()
    assert violations(opened.page) == []
    assert opened.errors == []
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_complaint(chrome: Any, run_directory: Path, scheme: str) -> None:
    opened = Opened(chrome, run_directory / "report.html", color_scheme=scheme).wait()
    opened.page.get_by_role("button", name="Group by name").click()
    opened.page.locator("#operations tbody button.name").first.click()  # its details are open
    assert violations(opened.page) == []
    opened.close()
