"""The comparison's tables say what its results hold."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.compare.tables import markdown, percent, ratios

MIB = 1 << 20
MACHINE = {
    "date": "2026-01-02",
    "cpus": 2,
    "model": "CPU",
    "memory": 2**34,
    "kernel": "6.1",
    "python": "3.12",
}


def write(folder: Path, part: str, result: object) -> None:
    versions = {"ours": "1.0", "theirs": "2.0"}
    kept = {"machine": MACHINE, "versions": versions, "not_installed": {"gone": "no wheel"}, "result": result}
    (folder / f"{part}.json").write_text(json.dumps(kept))


def reported(*sizes: float | None, low: float | None = None, high: float | None = None) -> list[object]:
    return [None if size is None else {"peak": size * MIB, "low": low, "high": high} for size in sizes]


def truth(folder: Path) -> None:
    entry = {
        "words": "a blip",
        "figure": "peak",
        "truth": {"median": 100.0 * MIB},
        "reported": {"ours": reported(99, 101, 100), "theirs": reported(10, None, 300)},
    }
    silent = entry | {
        "words": "a child",
        "reported": {"ours": reported(100, low=90 * MIB, high=250 * MIB), "theirs": [None]},
    }
    write(folder, "truth", {"blip": entry, "child": silent})


def test_medians_against_the_truth(tmp_path: Path) -> None:
    truth(tmp_path)
    found = ratios(json.loads((tmp_path / "truth.json").read_text()))
    assert found["ours"]["blip"][0] == 1.0
    assert found["theirs"]["blip"][0] == 1.55
    assert found["theirs"]["child"] == (None, None, None)
    assert found["ours"]["child"] == (1.0, 0.9, 2.5)


def test_tables_of_what_was_measured(tmp_path: Path) -> None:
    assert "measure" in markdown(tmp_path)
    truth(tmp_path)
    times = {"bare": {"median": 0.01}, "ours": {"median": 0.06}, "theirs": {"median": 0.11}}
    write(tmp_path, "start", {"true": times})
    look = {"core_share": 0.004, "memory": 15 * MIB, "ticks": 60, "disk": 13000, "rendered": 1000}
    write(tmp_path, "watching", {"sizes": {"1": {"ours": [look]}}})
    text = markdown(tmp_path)
    assert "| ours | **100 %** | **100 % (90 % to 2.5 times)** |" in text
    assert "| theirs | 155 % | - |" in text
    assert "| ours | 50 ms | - | - | - | 0.4 % | 15 MiB | 200 B | - | - |" in text
    assert "Not installed: gone (no wheel)." in text


def test_shares() -> None:
    assert [percent(share) for share in (None, 0.0, 0.031, 1.0, 5.02)] == [
        "-",
        "0 %",
        "3 %",
        "100 %",
        "5.0 times",
    ]
