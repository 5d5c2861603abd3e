"""`wrap` under ill treatment: started in a separate place, and looked after when it is over."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.record.format import RUN_FILE, SAMPLES_FILE
from otel_memwatch.reports import render
from otel_memwatch.run import load
from tests.support.control_group import memory_parent
from tests.support.wrapped import PROGRAM, environment

GUARD = 90
"""Seconds after which something hangs: no test depends on how long anything takes."""
LONG = os.environ.get("MEMWATCH_LONG") == "1"
"""The long profile: the same tests, more often and with more of everything."""
_TOKEN = "MEMWATCH_TORTURE"
_LEFT = {RUN_FILE, SAMPLES_FILE, "processes.jsonl", "made_of.json", "report.txt", "report.html", "memory.png"}


class Report:
    """What the reports say of a run, made in this process."""

    def __init__(self, path: Path) -> None:
        run = load(path)
        document, text = io.BytesIO(), io.BytesIO()
        render("json", run, document)
        render("text", run, text, encoding="utf-8")
        self.json: dict[str, Any] = json.loads(document.getvalue())
        self.text = text.getvalue().decode()

    @property
    def state(self) -> str:
        return str(self.json["run"]["state"])

    @property
    def ended(self) -> dict[str, Any]:
        return dict(self.json["ended"])

    @property
    def ticks(self) -> int:
        return int(self.json["quality"]["ticks"])


class Outcome:
    """How a `wrap` ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def ours(self) -> list[str]:
        """The lines that we printed in our own name."""
        return [line for line in self.err.splitlines() if line.startswith("otel-memwatch: ")]


class Trial:
    """One `wrap`: its processes can be distinguished from all others, its temporary files have a separate directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "run"
        self.token = uuid.uuid4().hex
        self.temporary = folder / "tmp"
        self.temporary.mkdir(mode=0o1777)
        self.temporary.chmod(0o1777)
        self.outlived = False
        """Whether processes of the target have outlived `wrap`: its control group then cannot be removed."""
        self._started: list[subprocess.Popen[bytes]] = []

    def variables(self, **more: str) -> dict[str, str]:
        """Environment for whatever belongs to the trial."""
        return environment(**{_TOKEN: self.token, "TMPDIR": str(self.temporary)} | more)

    def command(self, argv: list[str], *options: str, out: bool = True, plot: bool = False) -> list[str]:
        """The command line of a `wrap` of `argv`."""
        place = ["--out", str(self.out)] if out else []
        return [*PROGRAM, "wrap", *place, *(["--plot"] if plot else []), *options, "--", *argv]

    def start(self, command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        """Starts it with its output captured."""
        # Into files: a pipe has no end before the last grandchild has gone.
        number = len(self._started)
        streams = [(self.folder / f"std{name}-{number}").open("wb") for name in ("out", "err")]
        how = {"env": self.variables(), "stdout": streams[0], "stderr": streams[1], **how}
        process = subprocess.Popen(command, start_new_session=True, **how)
        for stream in streams:
            stream.close()
        self._started.append(process)
        return process

    def wait(self, process: subprocess.Popen[bytes]) -> Outcome:
        """Waits for its end."""
        process.wait(GUARD)
        number = self._started.index(process)
        out, err = (
            (self.folder / f"std{name}-{number}").read_text(errors="surrogateescape")
            for name in ("out", "err")
        )
        return Outcome(process.returncode, out, err)

    def run(self, command: list[str], **how: Any) -> Outcome:
        """Runs it to its end."""
        return self.wait(self.start(command, **how))

    def wrap(self, argv: list[str], *options: str, **how: Any) -> Outcome:
        """Runs `argv` under `wrap`; the outcome must be that of the bare command, but for our own lines."""
        bare = self.run(argv, **how)
        wrapped = self.run(self.command(argv, *options), **how)
        assert wrapped.code == bare.code, wrapped.err
        assert wrapped.out == bare.out
        assert wrapped.err.startswith(bare.err)
        assert "Traceback" not in wrapped.err[len(bare.err) :], wrapped.err
        return wrapped

    def recorded(self, ticks: int = 3) -> int:
        """Waits until so many ticks are on disk; pid of the target."""
        path = self.out / SAMPLES_FILE
        wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") > ticks)
        return int(self.info["target"]["pid"])

    @property
    def info(self) -> dict[str, Any]:
        """run.json as it is now."""
        return dict(json.loads((self.out / RUN_FILE).read_text()))

    def report(self) -> Report:
        """The reports; no file of ours may lie around in the run directory."""
        if load(self.out).state == "finished":
            left = {path.name for path in self.out.iterdir() if not path.name.startswith("operations-")}
            assert left <= _LEFT, left
        return Report(self.out)

    def processes(self) -> list[int]:
        """Living processes of the trial."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if self.token.encode() in Path(f"/proc/{name}/environ").read_bytes():
                        found.append(int(name))
        return found

    def finish(self) -> None:
        """Ends what is left; reports what should not have been."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
        survivors = self.processes()
        until = time.monotonic() + 5
        while survivors and time.monotonic() < until:
            time.sleep(0.02)
            survivors = self.processes()
        names = {pid: _words(pid) for pid in survivors}
        for pid in survivors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait(GUARD)
        assert not names, f"left behind: {names}"
        assert not list(self.temporary.iterdir()), "temporary files were left behind"
        groups = [
            path
            for process in self._started
            if process.returncode != -signal.SIGKILL and not self.outlived
            for path in memory_parent().glob(f"memwatch-{process.pid}-*")
        ]
        assert not groups, f"control groups were left behind: {groups}"


NOBODY = 65534


def unprivileged(command: list[str]) -> list[str]:
    """The command as the unprivileged user; it may read files like root, for an interpreter that lies in a closed directory."""
    reading = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *reading, *command]


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "?"


@contextlib.contextmanager
def trial(folder: Path) -> Iterator[Trial]:
    """A trial; what it leaves behind fails the test."""
    made = Trial(folder)
    try:
        yield made
    except BaseException:
        with contextlib.suppress(AssertionError):
            made.finish()
        raise
    made.finish()


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """A hang guard, not a measurement."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def needs_root() -> None:
    """Skips the test for all users but root; a run of CI must be root's."""
    if os.geteuid() != 0:
        reason = "needs root"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@contextlib.contextmanager
def file_system(place: Path, options: str) -> Iterator[Path]:
    """A file system in memory, mounted at `place` for the time of the block."""
    needs_root()
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
