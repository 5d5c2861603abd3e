"""The page as a file: its policy names the scripts and styles that are in it, its size, and that nothing in it is markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from io import BytesIO
from pathlib import Path

import pytest

from otel_memwatch.reports import html, render
from otel_memwatch.run import RecordedRun, load
from tests.support import recorded

ASSETS = Path(html.__file__).with_name("assets")


def page(run: RecordedRun) -> str:
    out = BytesIO()
    render("html", run, out)
    return out.getvalue().decode()


def digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def test_the_hashes_are_those_of_the_files() -> None:
    assert {name: digest((ASSETS / name).read_bytes()) for name in html.HASHES} == html.HASHES


@pytest.mark.parametrize("scene", ["short", "workers", "nested", "gpus"])
def test_the_policy_allows_what_is_in_the_page_and_nothing_else(scene: str, tmp_path: Path) -> None:
    text = page(load(getattr(recorded, scene)(tmp_path / scene)))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert text.index("<meta charset") < policy.start() < text.index("<style>")
    inline = re.findall(r"<(script|style)>(.*?)</\1>", text, re.DOTALL)
    assert len(inline) == 5
    for _, content in inline:
        assert digest(content.encode()) in policy[1]
    assert "default-src 'none'" in policy[1]
    body = re.sub(r"<(script|style)\b.*?</\1>|<!--.*?-->", "", text, flags=re.DOTALL)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<a |<link|<img| style=| on\w+=", body)


def test_what_no_run_can_change_takes_less_than_250_kb(tmp_path: Path) -> None:
    fixed = sum((ASSETS / name).stat().st_size for name in html.HASHES)
    assert fixed < 150_000
    assert len(page(load(recorded.short(tmp_path / "short")))) < 250_000


def test_a_run_of_a_day_with_everything_in_it_takes_less_than_1_mb(tmp_path: Path) -> None:
    """More ticks than are drawn, more operations and processes than are listed, long names."""
    mib = recorded.MIB
    day = 86400.0
    ticks = [
        [
            day * i / 9000,
            *[((i * 7919 + k * 104729) % 65536) * 4096 for k in range(2)],
            i * 8.0,
            i * 1.0,
            i * 977 * mib,
        ]
        for i in range(9000)
    ]
    operations = []
    for i in range(1, 2600):
        operations += [
            recorded.opened(i, 30.0 * i, f"operation of kind {i % 700}"),
            recorded.closed(i, 30.0 * i + 25, i),
        ]
    processes = [
        line
        for i in range(600)
        for line in recorded.process(
            1000 + i,
            i * 140.0,
            i * 140.0 + 600,
            i,
            command="worker",
            argv=["worker", "--input", f"/data/{'x' * 300}/{i}"],
        )
    ]
    path = recorded.record(
        tmp_path / "run",
        seconds=day,
        series=[recorded.TREE, recorded.MAIN, recorded.CPU_USER, recorded.CPU_SYSTEM, recorded.DISK_READ],
        ticks=ticks,
        peaks={"tree": recorded.peak(256, at=1000.0)},
        processes=processes,
        operations={100: operations},
    )
    text = page(load(path))
    assert len(text.encode()) < 1_000_000
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert data
    drawn = json.loads(data[1])
    assert 2048 <= len(drawn["buckets"]["ends"]) <= 4096
    assert drawn["operations"]["total"] == 2599
    assert drawn["processes"]["total"] == 600
    level, most = 0, 0
    for step in drawn["memory"][0]["high"]["steps"]:
        level += step or 0
        most = max(most, level * drawn["memory"][0]["high"]["unit"])
    assert most == max(tick[2] for tick in ticks)  # its only process, as the totals have it


def test_the_page_says_what_no_bound_has_where_no_group_reported(tmp_path: Path) -> None:
    told = "Kernel memory such as pipes, sockets and dentries is not visible here"
    for how, left_out in (("at one tick, page faults", True), ("cgroup watermark less page cache", False)):
        path = recorded.record(
            tmp_path / how.replace(" ", "-"),
            seconds=1.0,
            series=[recorded.TREE],
            ticks=[(0.5, 110 * recorded.MIB)],
            peaks={"tree": recorded.peak(110, "interval", low=100, high=120, how=how)},
        )
        assert (told in page(load(path))) is left_out


def test_the_licence_of_the_chart_library_is_in_the_page(tmp_path: Path) -> None:
    text = page(load(recorded.short(tmp_path / "short")))
    assert "Permission is hereby granted, free of charge" in text
    assert "Leon Sorokin" in text


def test_no_data_ends_the_element_that_holds_it(tmp_path: Path) -> None:
    path = recorded.nested(tmp_path / "run")
    info = json.loads((path / "run.json").read_text())
    info["command"] = ["</script><!--<script>", "\u2028", "\udce4"]
    (path / "run.json").write_text(json.dumps(info))
    for file in path.glob("operations-*.jsonl"):
        file.write_text(file.read_text().replace("Train", "</script><!--<script>"))
    text = page(load(path))
    assert len(re.findall(r"<script", text)) == 4
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert data
    assert not set("<>&") & set(data[1])
    rows = json.loads(data[1])["operations"]["rows"]
    assert any(row["name"].startswith("</script>") for row in rows)


def test_lanes_of_several_processes_carry_the_rank_that_names_one_of_them(tmp_path: Path) -> None:
    """Those of the third have the rank of the second: a loader that rank 1 forked. Their pids tell them apart. Ranks are in order."""
    lines = [recorded.opened(1, 0.1, "step"), recorded.closed(1, 0.4, 10)]
    path = recorded.record(tmp_path / "run", seconds=1, operations={100: lines, 101: lines, 102: lines})
    for pid, rank in ((100, 2), (101, 1), (102, 1)):
        file = path / f"operations-{pid}.jsonl"
        head, _, rest = file.read_text().partition("\n")
        file.write_text(json.dumps({**json.loads(head), "rank": rank}) + "\n" + rest)
    data = re.search(r'id="data">(.*?)</script>', page(load(path)), re.DOTALL)
    assert data
    assert json.loads(data[1])["operations"]["lanes"] == ["pid 101", "pid 102", "rank 2"]


def test_the_answer_is_the_best_estimate_then_the_range(tmp_path: Path) -> None:
    peak = recorded.peak(300, "interval", low=300, high=410, how="page faults")
    peak["estimate"] = 340 * recorded.MIB
    path = recorded.record(
        tmp_path / "run",
        seconds=1.0,
        series=[recorded.TREE],
        ticks=[(0.5, 310 * recorded.MIB)],
        peaks={"tree": peak},
    )
    text = page(load(path))
    assert re.search(
        r"<h1[^>]*>[^<]* needed <strong[^>]*>about 340 MiB</strong> \(300-410 MiB\)\.</h1>", text
    )
    card = text[text.index('data-figure="tree"') :].partition("</dl>")[0]
    assert '<dd class="figure">about 340 MiB</dd><dd class="more">300-410 MiB</dd>' in card
