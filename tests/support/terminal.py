"""A terminal with a person at it: what the keyboard sends, what the screen shows."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

from tests.support.prefixes import GUARD, finish
from tests.support.wrapped import environment

_BECOME_LEADER = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""

INTERRUPT, SUSPEND, END = "\x03", "\x1a", "\x04"


class Terminal:
    """Runs a command as the leader of a session on a new pseudo terminal; a context manager."""

    def __init__(self, argv: list[str], cwd: Path, **variables: str) -> None:
        self.master, slave = pty.openpty()
        self.screen = ""
        self._seen = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BECOME_LEADER, *argv],
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(**{"TERM": "dumb", "PS1": "<prompt>", **variables}),
        )
        os.close(slave)

    @classmethod
    def bash(cls, cwd: Path) -> Terminal:
        """An interactive bash with job control and the prompt "<prompt>"."""
        return cls(["bash", "--norc", "--noprofile", "--noediting", "-i"], cwd)

    def __enter__(self) -> Terminal:  # noqa: PYI034 - Self is newer than Python 3.10
        return self

    def __exit__(self, *exception: object) -> None:
        finish(self.process)
        if self.master >= 0:
            os.close(self.master)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until the screen shows it, after what was expected before."""
        while True:
            found = re.compile(pattern).search(self.screen, self._seen)
            if found:
                self._seen = found.end()
                return found
            assert select.select([self.master], [], [], GUARD)[0], self.screen
            try:
                part = os.read(self.master, 65536)
            except OSError:
                part = b""
            assert part, self.screen
            self.screen += part.decode(errors="replace")

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self.master)
        self.master = -1
