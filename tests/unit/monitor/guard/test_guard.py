"""Guard: which event follows from which readings, and which verdict counts."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otel_memwatch.config import settings
from otel_memwatch.errors import CommandNotStarted
from otel_memwatch.monitor.guard import memory_scopes, run_processes
from otel_memwatch.monitor.guard.guard import Guard
from otel_memwatch.monitor.guard.memory_scopes import MemoryScope
from otel_memwatch.monitor.guard.run_processes import RunProcesses
from otel_memwatch.monitor.run import wrap
from otel_memwatch.monitor.run.supervise import start
from tests.unit.monitor.guard.ends import ended


class Recorder:
    """Events in a list."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str | None, dict[str, Any]]] = []

    def write(self, event: str, kind: str | None, at: float, **facts: Any) -> None:
        self.written.append((event, kind, facts))

    def close(self) -> None:
        pass

    @property
    def kinds(self) -> list[tuple[str, str | None]]:
        return [(event, kind) for event, kind, _ in self.written]


class Readings(MemoryScope):
    """A scope with given readings."""

    def __init__(self, of: str, size: int) -> None:
        super().__init__(of, size)
        self.now = 0

    def used(self, enough: int) -> int:
        return self.now


class Processes:
    """No process, and the ends that were asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def freeze(self, *, frozen: bool = True) -> None:
        self.asked.append("freeze" if frozen else "thaw")

    def largest(self) -> list[dict[str, Any]]:
        return [{"pid": 1, "command": "hog", "bytes": 7}]

    def signal(self, number: int) -> None:
        self.asked.append(number)

    def end(self) -> None:
        self.asked.append("end")


def guard_of(**given: Any) -> tuple[Guard, Recorder, Processes]:
    events, processes = Recorder(), Processes()
    guard = Guard(settings("wrap", given, {}), events, pytest.fail)  # type: ignore[arg-type]
    guard._processes = processes  # type: ignore[assignment]
    return guard, events, processes


def test_a_threshold_warns_once_until_memory_is_free_again() -> None:
    guard, events, _ = guard_of(warn=["50%", "80%"])
    scope = Readings("limit", 1000)
    scope.armed = {0.5: True, 0.8: True}
    for second, used in enumerate((100, 600, 700, 850, 900, 600, 850, 100, 600)):
        scope.now, scope.due = used, 0.0
        guard._check(scope, float(second))
    assert [facts["bytes"] for _, _, facts in events.written] == [600, 850, 850, 600]
    assert set(events.kinds) == {("warning", "limit")}
    first = events.written[0][2]
    assert (first["growth"], first["seconds_left"]) == (500, {"low": 0.8, "high": 0.8})


def test_two_thresholds_at_once_are_one_warning() -> None:
    guard, events, _ = guard_of(warn=["50%", "80%"])
    scope = Readings("cgroup", 1000)
    scope.armed = {0.5: True, 0.8: True}
    scope.now = 990
    guard._check(scope, 0.0)
    assert events.kinds == [("warning", "limit")]


def test_a_machine_that_runs_short_ends_the_run_once() -> None:
    guard, events, processes = guard_of(leave="1KiB")
    scope = Readings("machine", 10_000)
    for used in (8_900, 8_976, 8_977, 9_500):
        scope.now, scope.due = used, 0.0
        guard._check(scope, 1.0)
    assert events.kinds == [("verdict", "machine")]
    assert events.written[0][2]["bytes"] == 8_977
    assert processes.asked == ["freeze", "end", "thaw", "freeze", "thaw"]


def test_a_run_does_not_stay_frozen_if_its_processes_cannot_be_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard, _, processes = guard_of(leave="1KiB")
    scope = Readings("machine", 10_000)
    scope.now = 9_500

    def fail() -> None:
        raise OSError("no /proc")

    monkeypatch.setattr(processes, "largest", fail)
    with pytest.raises(OSError, match="no /proc"):
        guard._check(scope, 1.0)
    assert processes.asked[-1] == "thaw"


def test_a_far_end_is_probed_seldom_and_a_near_one_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_scopes, "usable_processors", lambda: 2)
    scope = Readings("limit", 100 << 30)
    scope.probe(5.0, 64 << 30)
    assert scope.due == 9.0  # two processors fill 16 GiB a second at most
    scope.now = 64 << 30
    scope.probe(9.0, 64 << 30)
    assert scope.due == pytest.approx(9.1)


def test_a_level_that_growth_reaches_is_probed_then() -> None:
    guard, _, _ = guard_of(warn=["50%"])
    scope = Readings("limit", 1000)
    scope.armed = {0.5: True}
    dues = []
    for now, used in ((0.0, 100), (0.1, 420), (0.125, 499), (0.2251, 495)):
        scope.now, scope.due = used, 0.0
        guard._check(scope, now)
        dues.append(round(scope.due, 4))
    assert dues == [0.1, 0.125, 0.225, 0.3251]  # the second early probe in a row waits


def test_each_probe_of_a_surge_may_come_early() -> None:
    guard, _, _ = guard_of(leave="1GiB")
    scope = Readings("machine", 3 << 30)
    dues = []
    for now, used in ((0.0, 1000), (0.1, 1400), (0.2, 1900), (0.23, 2010), (0.24, 2020), (0.25, 2040)):
        scope.now, scope.due = used << 20, 0.0
        guard._check(scope, now)
        dues.append(round(scope.due - now, 4))
    assert dues == [0.1, 0.1, 0.0296, 0.0104, 0.028, 0.01]


def test_probes_are_rare_after_the_last_warning() -> None:
    guard, events, _ = guard_of(warn=["50%"])
    scope = Readings("limit", 1000)
    scope.armed = {0.5: True}
    dues = []
    for now, used in ((0.0, 100), (0.1, 600), (1.1, 600), (2.1, 100), (2.2, 100)):
        scope.now, scope.due = used, 0.0
        guard._check(scope, now)
        dues.append(round(scope.due - now, 3))
    assert (dues, events.kinds) == ([0.1, 1.0, 1.0, 0.1, 0.1], [("warning", "limit")])


def test_the_guard_is_prepared_before_the_command_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beside a fork bomb it would take seconds. Its helper ends even if the command does not start."""
    ready: list[str] = []

    class Helper:
        def end(self) -> None:
            ready.append("ended")

    def prepare(guard: Guard, *, freezes: bool) -> None:
        ready.append("prepared")
        guard.thawer = Helper()  # type: ignore[assignment]

    def launch(*_: object, forked: Callable[[list[int]], None], **__: object) -> None:
        monkeypatch.setattr(Guard, "prepare", prepare)
        forked([7])  # the child waits
        raise CommandNotStarted("bomb", 127)

    monkeypatch.setattr(start, "launch", launch)
    given = {"timeout": "1s", "cgroup": "off", "out": str(tmp_path / "r")}
    run = wrap.RunResources(["bomb"], settings("wrap", given, {}), pytest.fail)
    assert run.prepare()
    with contextlib.closing(run), pytest.raises(CommandNotStarted):
        run.launch()
    assert ready == ["prepared", "ended"]


@pytest.mark.parametrize(("seconds", "expected"), [(60.0, [1, 2, 3]), (-1.0, [3])])
def test_a_listing_ends_in_time_among_a_great_many_processes(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: list[int]
) -> None:
    processes = RunProcesses(None, frozenset())
    monkeypatch.setattr(processes, "pids", lambda: [3, 2, 1])
    monkeypatch.setattr(run_processes, "_LISTING_SECONDS", seconds)
    monkeypatch.setattr(run_processes, "parse_resident", lambda text: int(text) * 4096)
    monkeypatch.setattr(run_processes, "_content", lambda path: str(7 - int(path.split("/")[2])).encode())
    found = processes.largest()
    assert [one["pid"] for one in found] == expected
    assert found[-1] == {"pid": 3, "command": "4", "bytes": 4 * 4096}


def test_page_cache_is_not_counted_once_the_charge_reaches_a_level(tmp_path: Path) -> None:
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text(
        "anon 300\nfile 600\ninactive_file 200\nactive_file 50\nshmem 350\n"
    )
    scope = memory_scopes.CgroupScope("limit", str(tmp_path), 2, 1000)
    assert [scope.used(901), scope.used(900)] == [900, 650]
    scope.close()


def test_the_first_verdict_counts() -> None:
    guard, events, processes = guard_of(timeout="1s", leave="1KiB", kill_after="5s")
    guard._term_at = 1.0
    assert guard._check_time(0.5) == 1.0
    guard._check_time(1.0)
    assert processes.asked == [signal.SIGTERM, signal.SIGCONT]
    scope = Readings("machine", 10_000)
    scope.now = 9_999
    guard._check(scope, 1.1)
    assert events.kinds == [("verdict", "timeout")]


def test_sigterm_begins_one_grace_period_if_its_length_is_set() -> None:
    guard, events, processes = guard_of(kill_after="0s")
    assert not guard.take_signal(signal.SIGINT)
    assert guard.take_signal(signal.SIGTERM)
    assert guard.take_signal(signal.SIGTERM)
    assert guard._terminating is not None
    guard._terminating.join()
    assert processes.asked == [signal.SIGTERM, signal.SIGCONT, "end"]
    assert events.kinds == []


def test_sigterm_is_the_commands_by_default() -> None:
    guard, _, processes = guard_of(timeout="5s")
    assert not guard.take_signal(signal.SIGTERM)
    assert processes.asked == []


def test_a_breach_between_two_probes_has_its_warning_and_the_verdict_is_last() -> None:
    guard, events, _ = guard_of(limit="150MiB", warn=["85%"])
    scope = Readings("limit", 150 << 20)
    scope.armed = {0.85: True}
    guard._scopes.append(scope)
    guard._breached([])
    scope.now = 150 << 20
    guard._check(scope, 1.0)
    assert events.kinds == [("warning", "limit"), ("verdict", "limit")]
    assert guard.verdict is not None


def test_a_breach_while_a_warning_is_prepared_has_its_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    guard, events, processes = guard_of(limit="150MiB", warn=["85%"])
    scope = Readings("limit", 150 << 20)
    scope.armed, scope.now = {0.85: True}, 149 << 20
    guard._scopes.append(scope)

    def breach() -> list[dict[str, Any]]:
        guard._breached([])
        return []

    monkeypatch.setattr(processes, "largest", breach)
    guard._check(scope, 1.0)
    assert events.kinds == [("warning", "limit"), ("verdict", "limit")]


def test_nothing_is_decided_after_the_end() -> None:
    guard, events, processes = guard_of(leave="1KiB")
    guard._done.set()
    guard.finish()
    scope = Readings("machine", 10_000)
    scope.now = 9_999
    guard._check(scope, 1.1)
    guard.write_end(ended(exit_code=3), {"bytes": 9})
    assert events.kinds == [("verdict", "finished")]
    assert events.written[0][2] == {"exit_code": 3, "signal": None, "peak": {"bytes": 9}}
    assert processes.asked == ["freeze", "thaw"]


def test_a_signal_that_is_not_ours_is_killed() -> None:
    guard, events, _ = guard_of(events="-")
    guard.write_end(ended(signal=signal.SIGTERM), None)
    assert events.kinds == [("verdict", "killed")]


class Mark(NamedTuple):
    time: float
    lost: float


class Waits:
    """A ledger of a run that waits for a share of each moment."""

    def __init__(self, share: Callable[[float], float]) -> None:
        self._share = share
        self._now = self._lost = 0.0

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self._now += 0.05
            self._lost += self._share(self._now) * 0.05

    def mark(self) -> Mark:
        return Mark(self._now, self._lost)

    def waited(self, first: Mark, last: Mark) -> float:
        return last.lost - first.lost


def events_of(share: Callable[[float], float], every: float = 0.25) -> tuple[Recorder, Processes, float]:
    """Events of a run under `--stalled 10s` with a reading every so many seconds, and the time of the last event."""
    guard, events, processes = guard_of(stalled="10s")
    ledger, last = Waits(share), 0.0
    while ledger.mark().time < 100 and guard.verdict is None:
        ledger.pass_time(every)
        before = len(events.written)
        guard.note_stalls(ledger)  # type: ignore[arg-type]
        last = ledger.mark().time if len(events.written) > before else last
    return events, processes, last


@pytest.mark.parametrize("every", [0.1, 0.25, 1.0])
def test_a_run_without_progress_is_warned_of_and_ended(every: float) -> None:
    events, processes, last = events_of(lambda now: 0.9 if now > 20.3 else 0.0, every)
    assert events.kinds == [("warning", "stalled"), ("verdict", "stalled")]
    assert 7.5 < last - 20.3 < 9.7
    warning, verdict = (facts["stalled_seconds"] for _, _, facts in events.written)
    assert 3.9 < warning <= 5
    assert 6.5 < verdict <= 9.2
    assert processes.asked == ["end"]


@pytest.mark.parametrize("every", [3.0, 4.0, 5.0, 6.0])
def test_readings_that_come_late_warn_first(every: float) -> None:
    events, _, _ = events_of(lambda now: 0.9 if now > 20.3 else 0.0, every)
    assert events.kinds == [("warning", "stalled"), ("verdict", "stalled")]


def test_a_stall_that_sets_in_slowly_counts_from_its_first_tenth() -> None:
    events, _, last = events_of(lambda now: min(0.92, max(0.0, (now - 20) * 0.2)))
    assert events.kinds[-1] == ("verdict", "stalled")
    assert last - 20.5 < 10


@pytest.mark.parametrize(
    "share",
    [
        lambda _: 0.7,  # three times slower goes on
        lambda now: 1.0 if now % 14 < 7 else 0.0,
        lambda now: 1.0 if now % 5 < 3 else 0.0,
        lambda now: 1.0 if 20 < now < 27.5 else 0.0,
    ],
)
def test_a_run_that_waits_now_and_then_goes_on(share: Callable[[float], float]) -> None:
    events, processes, _ = events_of(share)
    assert [event for event, _ in events.kinds if event == "verdict"] == []
    assert processes.asked == []


@pytest.mark.parametrize(
    ("given", "kind", "end", "expected"),
    [
        ({}, None, ended(exit_code=0), None),
        ({}, "timeout", ended(signal=signal.SIGTERM), 124),
        ({}, "timeout", ended(exit_code=0), 124),
        ({}, "timeout", ended(signal=signal.SIGKILL), None),
        ({}, "limit", ended(signal=signal.SIGKILL), None),
        ({"limit_exit_code": "77"}, "limit", ended(signal=signal.SIGKILL), 77),
        ({"limit_exit_code": "77"}, "timeout", ended(exit_code=0), 77),
        ({"limit_exit_code": "0"}, "machine", ended(signal=signal.SIGKILL), 0),
        ({"limit_exit_code": "77"}, None, ended(signal=signal.SIGKILL), None),
    ],
)
def test_exit_codes(given: dict[str, str], kind: str | None, end: Any, expected: int | None) -> None:
    guard, _, _ = guard_of(**given)
    guard.verdict = None if kind is None else {"kind": kind}
    assert guard.exit_code(end) == expected
