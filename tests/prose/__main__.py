"""Checks prose and prints what breaks a rule.

python -m tests.prose                    summary: counts and limits of each room
python -m tests.prose docs               every violation in places that contain "docs"
python -m tests.prose --lower            write lower counts to limits.toml; counts never rise
"""

from __future__ import annotations

import sys

from tests.prose.limits import (
    LIMITS,
    check,
    excepted,
    final_excess,
    lowered,
    room_counts,
    room_limits,
    written,
)
from tests.prose.rules import violations
from tests.prose.texts import all_texts


def main(arguments: list[str]) -> int:
    texts = list(all_texts())
    found = violations(texts, excepted())
    counts = room_counts(texts, found)
    if arguments == ["--lower"]:
        LIMITS.write_text(written(lowered(counts, room_limits())))
        return 0
    for place in arguments:
        for one in found:
            if place in one.text.place:
                print(f"{one.text.place}: {one.rule}: {one.found}")
    if not arguments:
        for room, row in counts.items():
            print(room, " ".join(f"{name}={count}" for name, count in row.items()))
        for line in final_excess(texts, found):
            print("above the final limit:", line)
    broken = check(texts, found)
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


sys.exit(main(sys.argv[1:]))
