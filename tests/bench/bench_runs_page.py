"""Prints how soon the page of 10 000 runs of 50 names is made and opened, and its size.

python -m tests.bench.bench_runs_page [--repeat N]

Opened: from the navigation until Chromium has shown the first charts and the table reacts. Sorted: from a click on a heading
until the rows are there. The best of N counts, because others use the machine too. Budget: opened in 2 s, 5 MB.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from otel_memwatch.run.figures import FIGURES
from otel_memwatch.wings.index import runs_page
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.bench.changes import KINDS, NAMES, history
from tests.support.browser import Opened, browser

_READY = """
new MutationObserver(() => {
  if (document.documentElement?.hasAttribute("data-ready"))
    requestAnimationFrame(() => setTimeout(() => { window.readyAt ??= performance.now(); }));
}).observe(document, { attributes: true, subtree: true });
"""
_SORT = """() => {
  const began = performance.now();
  document.querySelectorAll("#runs th button")[4].click();
  document.querySelector("#runs").getBoundingClientRect();
  return performance.now() - began;
}"""


def _rows() -> list[IndexedRun]:
    """Return runs with a value of each figure, a range of memory, and names, commands and commits of usual length."""
    rng, rows = np.random.default_rng(1), []
    fields = {one.field for one in FIGURES} - {"", "memory"}
    for number in range(NAMES):
        made, _ = history(rng, f"name {number}", list(KINDS)[number % len(KINDS)])
        for place, row in enumerate(made):
            changed = {field: round(4e6 * rng.random(), 3) for field in fields} | {
                "path": f"memwatch-runs/20261127T1801{place:02}Z-name-{number}-{30_000 + place}",
                "command_json": f'["python", "train.py", "--epochs", "{number}", "--seed", "{place}"]',
                "commit": f"{rng.integers(1 << 62):040x}",
                "certainty": "interval",
                "low": int(row.memory or 0),
                "started": 6e3 * place + number,
                "host": "worker",
            }
            rows.append(row._replace(**changed))
    return sorted(rows, key=lambda row: row.started)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    rows = _rows()
    with tempfile.TemporaryDirectory() as place, browser() as chromium:
        file = Path(place, "runs.html")
        makes, opens, sorts = [], [], []
        for _ in range(given.repeat):
            began = time.perf_counter()
            file.write_bytes(runs_page.html(rows, None, str(file)))
            makes.append(time.perf_counter() - began)
        for _ in range(given.repeat):
            opened = Opened(chromium, file, script=_READY)
            opened.page.wait_for_function("window.readyAt")
            assert opened.page.evaluate("memwatch.charts.length > 0")
            assert not opened.errors
            opens.append(opened.page.evaluate("window.readyAt") / 1e3)
            sorts.append(opened.page.evaluate(_SORT) / 1e3)
            opened.close()
        size = file.stat().st_size / 1e6
    print(
        f"{len(rows)} runs: {size:.2f} MB (budget 5), made in {min(makes):.2f} s, "
        f"opened in {min(opens):.2f} s (budget 2), sorted in {min(sorts):.2f} s; best of {given.repeat}"
    )


if __name__ == "__main__":
    main()
