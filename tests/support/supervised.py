"""A wrapper made of nothing but `otel_memwatch.monitor.run.supervise`: what is tested is supervision alone.

Usage: supervised.py [--plain] [--log FILE | --slow] COMMAND...

* --plain: witness and child are forks of Python, as where no compiler was available.
* --log: one line per reaped process is appended to FILE.
* --slow: the child says "entering", then waits a second before it becomes the command, as for a slow service manager.
"""

from __future__ import annotations

import os
import sys
import time

from otel_memwatch.errors import CommandNotStarted
from otel_memwatch.model import ChildExit
from otel_memwatch.monitor.run.supervise import end_like, launch, signals, start


def main() -> None:
    arguments = sys.argv[1:]
    log = None
    before_exec = None
    if arguments[:1] == ["--plain"]:
        signals._COMPILED = start._COMPILED = ""
        arguments = arguments[1:]
    if arguments[:1] == ["--slow"]:
        before_exec, arguments = enter_slowly, arguments[1:]
    if arguments[:1] == ["--log"]:
        log, arguments = arguments[1], arguments[2:]

    def told(dead: ChildExit) -> None:
        if log is not None:
            with open(log, "a", encoding="utf-8") as file:
                more = {"floor": target.floor, "monitor": os.getpid(), "helper": dead.pid in target.helpers}
                print({**dead._asdict(), **more}, file=file)

    try:
        target = launch(
            arguments, variables={"OTEL_MEMWATCH_RUN_DIR": "/nonexistent"}, before_exec=before_exec
        )
    except CommandNotStarted as error:
        sys.stderr.write(f"supervised: {error}\n")
        sys.exit(error.exit_code)
    end_like(target.wait(told))


def enter_slowly() -> None:
    os.write(2, b"entering\n")
    time.sleep(1)


if __name__ == "__main__":
    main()
