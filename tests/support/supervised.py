"""A wrapper made of nothing but `otel_memwatch.monitor.run.supervise`: what is tested is supervision alone.

Usage: supervised.py [--log FILE] COMMAND...; with --log one line per reaped process is appended to FILE.
"""

from __future__ import annotations

import os
import sys

from otel_memwatch.errors import CommandNotStarted
from otel_memwatch.model import ChildExit
from otel_memwatch.monitor.run.supervise import end_like, launch


def main() -> None:
    arguments = sys.argv[1:]
    log = None
    if arguments[:1] == ["--log"]:
        log, arguments = arguments[1], arguments[2:]

    def told(dead: ChildExit) -> None:
        if log is not None:
            with open(log, "a", encoding="utf-8") as file:
                more = {"floor": target.floor, "monitor": os.getpid(), "helper": dead.pid in target.helpers}
                print({**dead._asdict(), **more}, file=file)

    try:
        target = launch(arguments, variables={"OTEL_MEMWATCH_RUN_DIR": "/nonexistent"})
    except CommandNotStarted as error:
        sys.stderr.write(f"supervised: {error}\n")
        sys.exit(error.exit_code)
    end_like(target.wait(told))


if __name__ == "__main__":
    main()
