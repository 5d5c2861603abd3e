#!/bin/bash
# Reports OOM kills and incomplete records on the job's page, and passes the peak to later steps.
set -eu
[ -d "$DIRECTORY" ] || exit 0
"$RUNNER_TEMP/otel-memwatch/bin/python" - "$DIRECTORY" "$NAME" <<'PYTHON'
import os
import sys

from otel_memwatch import load_run

directory, name = sys.argv[1:]
run = load_run(directory)
peak, ended = run.peaks.tree, run.ending


def annotate(level: str, text: str) -> None:
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    print(f"::{level} title=otel-memwatch {name.replace(',', ' ').replace(':', ' ')}::{text}")


needed = f", it had needed {peak.bytes / 1048576:.0f} MiB until then" if peak else ""
if ended.oom_kills:
    annotate("error", f"{ended.reason}{needed}.")
elif ended.signal == 9:
    annotate("error", f"{ended.reason}: the runner or a limit may have done it{needed}.")
elif run.state != "finished":
    annotate("warning", f"{ended.reason}{needed}.")
with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
    file.write(f"peak-bytes={peak.bytes if peak else ''}\n")
PYTHON
