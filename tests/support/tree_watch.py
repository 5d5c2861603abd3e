"""Watches a command as `wrap` does, without recorder: `python -m tests.support.tree_watch OPTIONS -- COMMAND`.

Prints one JSON object: the ticks (metric and attribute -> value), the process records, the totals. OPTIONS is a JSON object:
interval, system, names (of sources), pause (seconds to go on after the command has ended), after (a
file whose appearance is waited for before the sources are opened).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from otel_memwatch.model import ProcessRecord
from otel_memwatch.monitor.run.supervise import target
from otel_memwatch.monitor.sampling.sources import THIS_SYSTEM, Context, open_sources
from otel_memwatch.runtime import system_calls


def label(column: Any) -> str:
    """Name of a column in the result."""
    return " ".join([column.metric, *(value for _, value in column.attributes)])


def watch(options: dict[str, Any], argv: list[str]) -> dict[str, Any]:
    """Runs the command to its end."""
    system_calls.prctl(system_calls.PR_SET_CHILD_SUBREAPER, 1)
    root = os.fork()
    if root == 0:
        os.execvp(argv[0], argv)
    guard = time.monotonic() + 30.0
    while "after" in options and not os.path.exists(options["after"]) and time.monotonic() < guard:
        time.sleep(0.01)
    records: list[ProcessRecord] = []
    context = Context(
        root,
        options.get("interval", 0.05),
        adopt=True,
        system=options.get("system", THIS_SYSTEM),
        on_process=records.append,
    )
    sources, missing = open_sources(context, options.get("names", ["process_tree"]))
    tree = context.knowing(sources).tree
    assert tree is not None
    ticks, deadline = [], None
    while True:
        while (end := target.reap(root)) is not None:
            tree.note_exit(end)
            if end.main:
                deadline = time.monotonic() + options.get("pause", 0.0)
        now = time.monotonic()
        tick: dict[str, Any] = {"time": now}
        for source in sources:
            values = source.read(now)
            for column, value in zip(source.columns, values, strict=True):
                if value is not None:
                    tick[label(column)] = value
        ticks.append(tick)
        if deadline is not None and now >= deadline:
            break
        time.sleep(context.interval)
    tree.finish(time.monotonic())
    return {
        "root": root,
        "ticks": ticks,
        "records": [
            {name: value for name, value in record._asdict().items() if value is not None}
            for record in records
        ],
        "totals": dict(tree.totals()),
        "missing": {name: str(reason) for name, reason in missing.items()},
    }


def main() -> None:
    """Command line."""
    place = sys.argv.index("--")
    options = json.loads(sys.argv[1]) if place == 2 else {}
    result = watch(options, sys.argv[place + 1 :])
    # standard output may be the command's too: ours is the last line
    print("\n" + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
