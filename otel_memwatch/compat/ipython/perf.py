"""Hardware and software counters of this process by `perf stat`, and a parser of its output."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import time
from typing import NamedTuple

from otel_memwatch.compat.current_memory import size_of
from otel_memwatch.errors import Unavailable, UsageError
from otel_memwatch.runtime.owned_descriptor import OwnedDescriptor, move_high
from otel_memwatch.runtime.wait_readable import readable

DEFAULT_EVENT = "cache-misses"
NO_RESULTS = "perf - no results to report, possibly the collection time was too short?"

NOT_COUNTED, NOT_SUPPORTED = "<not counted>", "<not supported>"

_ELAPSED = "seconds"
"""Word at the position of an event in perf's last lines."""

_ACKNOWLEDGED_SECONDS = 5.0
_HIGH = 960
"""Lowest number of our descriptors. Programs that close unknown descriptors rarely go that high."""
_PARANOID = "/proc/sys/kernel/perf_event_paranoid"

_GROUPING = "[,.'\u2019\u00a0\u2009\u202f ]"
"""Thousands separators of locales."""

_LINE = re.compile(
    r"^\s*(?:(?P<time>\d+[.,]\d+)\s+)?"
    rf"(?P<count>{NOT_COUNTED}|{NOT_SUPPORTED}|\d+(?:{_GROUPING}\d{{3}})*(?:[.,]\d+)?)\s+"
    r"(?:(?P<unit>msec|nsec|Joules|MiB|Bytes|MB/s)\s+)?"
    r"(?P<event>[A-Za-z][\w./:,=@-]*)(?=\s|$)"
)


class Count(NamedTuple):
    """One counter as `perf stat` reports it."""

    event: str
    value: float | None
    """`None`: not counted or not supported; zero is a count."""
    state: str = ""
    """Why there is no value, in perf's words."""
    unit: str = ""


def parse_csv(text: str) -> list[Count]:
    """Return the counters in the output of `perf stat -x ';'`, ignoring other lines."""
    counts = []
    for line in text.splitlines():
        fields = line.split(";")
        if len(fields) < 3 or not fields[2]:
            continue
        if fields[0] in (NOT_COUNTED, NOT_SUPPORTED):
            counts.append(Count(fields[2], None, fields[0], fields[1]))
        else:
            # perf writes the decimal point of the locale even here.
            with contextlib.suppress(ValueError):
                value = float(fields[0].replace(",", "."))
                if math.isfinite(value):
                    counts.append(Count(fields[2], value, "", fields[1]))
    return counts


def parse_line(line: str) -> Count | None:
    """Return the counter in a line of perf's default output, with or without `-I`; `None` if it has none."""
    line = line.partition("#")[0]
    found = _LINE.match(line)
    if found is None:
        return None
    text, unit = found["count"], found["unit"] or ""
    if text.startswith("<"):
        return Count(found["event"], None, text, unit)
    # The number has a locale's grouping. Only a quantity with a unit has decimals, one to three of them.
    decimals = ""
    if unit:
        whole, mark, rest = re.fullmatch(r"(.*?)(?:([.,])(\d{1,3}))?", text).groups()  # type: ignore[union-attr]
        if mark:
            text, decimals = whole, f".{rest}"
    return Count(found["event"], float(re.sub(_GROUPING, "", text) + decimals), "", unit)


def process_line(line: str, event: str | None = None) -> float | None:
    """Return the count in one line, only of `event` if given; `None` if it has none. Zero is a count, 1.5 ms is not."""
    count = parse_line(line)
    if count is None:
        return None
    if event is None:
        return None if count.unit or count.event == _ELAPSED else count.value
    return count.value if count.event.partition(":")[0] == event.partition(":")[0] else None


def process_lines(text: str, event: str | None = None) -> list[float]:
    """Return all counts in perf's output, only of `event` if given, including zeros."""
    values = (process_line(line, event) for line in text.splitlines())
    return [value for value in values if value is not None]


def describe(counts: list[Count], seconds: float) -> str:
    """Return one line for each counter: its mean rate, or the reason for a missing value."""
    lines = []
    for count in counts:
        if count.value is not None and seconds > 0:
            lines.append(f"perf value for {count.event} averages to {int(count.value / seconds):,}/second")
        elif count.state == NOT_SUPPORTED:
            lines.append(f"perf - {count.event} is not supported on this machine")
    return "\n".join(lines) or NO_RESULTS


def _perf_stat(event: str, *target: str) -> list[str]:
    return ["perf", "stat", "-x", ";", "-e", event, *target]


def check(event: str) -> None:
    """Try an event once. Raises `Unavailable` if perf is missing or forbidden, `UsageError` for an unknown event."""
    try:
        done = subprocess.run(
            _perf_stat(event, "--", "true"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except FileNotFoundError:
        raise Unavailable(
            "perf is not installed.", "Debian: apt install linux-perf; Ubuntu: linux-tools"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"perf cannot be run: {error}.") from None
    if done.returncode == 0 and parse_csv(done.stderr):
        return
    if "event syntax error" in done.stderr or "unknown" in done.stderr.lower():
        raise UsageError(f"perf has no event {event!r}.", "`perf list` names them")
    first = next(
        (line.strip() for line in done.stderr.splitlines() if line.strip()), f"exit code {done.returncode}"
    )
    try:
        with open(_PARANOID, encoding="ascii") as file:
            paranoid = file.read().strip()
    except OSError:
        paranoid = "not readable"
    raise Unavailable(f"perf cannot count here: {first}", f"{_PARANOID} is {paranoid}; 2 or less allows it")


class PerfCounter:
    """Counter of events of all threads and children of a process from `start` to `stop`.

    perf acknowledges the command to begin, so the count covers a short period completely, without waiting for a
    sampling interval. `start` takes about 10 ms.
    """

    def __init__(self, event: str, pid: int | None = None) -> None:
        self._event = event
        self._pid = os.getpid() if pid is None else pid
        self._process: subprocess.Popen[bytes] | None = None
        self._control: OwnedDescriptor | None = None
        self._answers: OwnedDescriptor | None = None
        self._printed: OwnedDescriptor | None = None
        """File in memory with perf's output. The file object of a pipe would read and close a reused number."""

    def start(self) -> None:
        """Begin to count. If perf fails, there are no counts and no error."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as inherited:
            commands, control = os.pipe()
            inherited.callback(os.close, commands)
            self._control = OwnedDescriptor(move_high(control, _HIGH))
            acknowledged, answers = os.pipe()
            inherited.callback(os.close, answers)
            self._answers = OwnedDescriptor(move_high(acknowledged, _HIGH))
            self._printed = OwnedDescriptor(move_high(os.memfd_create("perf"), _HIGH))
            options = ("-D", "-1", "--control", f"fd:{commands},{answers}", "-p", str(self._pid))
            self._process = subprocess.Popen(
                _perf_stat(self._event, *options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._printed.number,
                pass_fds=(commands, answers),
                # Ctrl-C at the prompt is for the cell, not for perf.
                start_new_session=True,
            )
        self._command(b"enable\n")

    def _command(self, command: bytes) -> None:
        """Send a command and wait for the acknowledgement, or for perf's end."""
        control, answers = self._control, self._answers
        if control is None or answers is None or not (control.is_ours() and answers.is_ours()):
            return  # the cell has closed them
        with contextlib.suppress(OSError):
            os.write(control.number, command)
            answer, deadline = b"", time.monotonic() + _ACKNOWLEDGED_SECONDS
            while b"ack" not in answer and time.monotonic() < deadline:
                if readable([answers.number], _ACKNOWLEDGED_SECONDS):
                    chunk = os.read(answers.number, 64)
                    if not chunk:
                        return
                    answer += chunk

    def resident(self) -> int:
        """Return perf's memory in bytes, which does not belong to the measurement."""
        size = None if self._process is None else size_of(self._process.pid)
        return 0 if size is None else size.rss

    def stop(self) -> list[Count]:
        """End counting and return the counters."""
        if self._process is None:
            self._close()
            return []
        self._command(b"disable\n")
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=_ACKNOWLEDGED_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        printed = b""
        # The cell may have closed the descriptor.
        if self._printed is not None and self._printed.is_ours():
            with contextlib.suppress(OSError):
                while chunk := os.pread(self._printed.number, 1 << 16, len(printed)):
                    printed += chunk
        self._close()
        return parse_csv(printed.decode(errors="replace"))

    def _close(self) -> None:
        for descriptor in (self._control, self._answers, self._printed):
            if descriptor is not None:
                descriptor.close()
        self._control = self._answers = self._printed = None
