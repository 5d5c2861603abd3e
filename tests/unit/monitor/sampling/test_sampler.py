"""The sampler on a clock that the test moves."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.catalog import MEMWATCH_SAMPLER_READING_DURATION
from otel_memwatch.model import Column, Snapshot, Value
from otel_memwatch.monitor.sampling import repeated
from otel_memwatch.monitor.sampling.auto_interval import AutoInterval
from otel_memwatch.monitor.sampling.early_samples import CPU_ADVANCE, LEAST_SHARE
from otel_memwatch.monitor.sampling.repeated import Repetition, WatchedFile
from otel_memwatch.monitor.sampling.sampler import CPU_SHARE, STALE_PERIODS, Sampler, SourceHealth
from otel_memwatch.runtime.polling import Pace
from otel_memwatch.runtime.threads import Flag
from tests.support.clock import FakeClock

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.repeated import RepeatedTimes


class Scripted:
    """A source that returns given values, and takes time."""

    def __init__(self, name: str, columns: Sequence[Column], clock: FakeClock, cpu: float = 0.0) -> None:
        self.name = name
        self.columns = columns
        self.clock = clock
        self.cpu = cpu
        self.wall = 0.0
        self.reads: list[float] = []
        self.values: Sequence[Value] | Exception = [None] * len(columns)

    def read(self, now: float) -> Sequence[Value]:
        self.reads.append(now)
        self.clock.sleep(max(self.wall, self.cpu), self.cpu)
        if isinstance(self.values, Exception):
            raise self.values
        return self.values


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def run(sampler: Sampler, clock: FakeClock, ticks: int) -> None:
    clock.ends_after = len(clock.waits) + ticks
    sampler.run(threading.Event())


def test_deadlines_are_absolute_however_long_a_read_takes(clock: FakeClock) -> None:
    """Reads of 30 ms in an interval of 100 ms shift nothing."""
    source = Scripted("s", [Column("process.memory.usage")], clock)
    source.values, source.wall = [1], 0.03
    run(Sampler([source], 0.1, clock=clock), clock, 50)
    assert source.reads == pytest.approx([1000.0 + 0.1 * k for k in range(50)])


def test_a_stall_is_late_and_missed_not_made_up_for(clock: FakeClock) -> None:
    """After 0.35 s of standstill three deadlines are gone; the next tick is due on the grid."""
    source = Scripted("s", [Column("process.memory.usage")], clock)
    source.values = [1]
    seen: list[Snapshot] = []
    sampler = Sampler([source], 0.1, clock=clock)
    sampler.subscribe(seen.append)
    sampler.tick()
    clock.sleep(0.45)
    sampler.tick()
    assert (seen[1].time, seen[1].missed) == (pytest.approx(1000.45), 3)
    assert sampler.missed == 3
    clock.sleep(0.05)
    sampler.tick()
    assert (seen[2].time, seen[2].missed) == (pytest.approx(1000.5), 0)


def test_a_long_reading_is_stated_and_a_short_one_costs_nothing(clock: FakeClock) -> None:
    """The monitor waits for a processor while it reads: what it reads late belongs to the time after the sample's."""
    source = Scripted("s", [Column("process.memory.usage")], clock)
    source.values, source.wall = [1], 0.0003
    sampler = Sampler([source], 0.1, clock=clock)
    assert sampler.columns[-1].metric == MEMWATCH_SAMPLER_READING_DURATION
    assert sampler.tick().values == (1, None)
    source.wall = 0.07
    assert sampler.tick().values == (1, pytest.approx(0.07, abs=1e-4))
    source.wall = 0.0003
    assert sampler.tick().values == (1, None)


def test_fast_columns_stand_before_slow_ones(clock: FakeClock) -> None:
    """The end of a tick's record can be left out when nothing slow was read."""
    a = Scripted("a", [Column("process.memory.usage"), Column("process.thread.count", period=1.0)], clock)
    b = Scripted(
        "b", [Column("system.memory.limit", period=1.0), Column("memwatch.tree.memory.usage")], clock
    )
    a.values, b.values = [1, 2], [3, 4]
    sampler = Sampler([a, b], 0.1, clock=clock)
    assert [c.metric for c in sampler.columns] == [
        "process.memory.usage",
        "memwatch.tree.memory.usage",
        "process.thread.count",
        "system.memory.limit",
        "memwatch.sampler.reading.duration",
    ]
    assert sampler.tick().values[:-1] == (1, 4, 2, 3)


def test_a_failing_source_publishes_nothing_and_is_reported_once(clock: FakeClock) -> None:
    """No stale value, no zero; the others go on; each change of state is reported once."""
    good = Scripted("good", [Column("process.memory.usage")], clock)
    bad = Scripted("bad", [Column("system.memory.limit")], clock)
    good.values, bad.values = [1], [9]
    told: list[tuple[str, SourceHealth]] = []
    sampler = Sampler([bad, good], 0.1, lambda name, health: told.append((name, health)), clock)
    sampler.tick()
    bad.values = OSError("gone")
    for _ in range(3):
        assert sampler.tick().values[:-1] == (None, 1)
    bad.values = [9]
    assert sampler.tick().values[:-1] == (9, 1)
    assert [(name, health.up) for name, health in told] == [("bad", False), ("bad", True)]
    assert sampler.health()["bad"].failures == 3
    assert "gone" in str(told[0][1].error)


def test_latest_carries_slow_values_until_they_are_stale(clock: FakeClock) -> None:
    """A reader of the latest snapshot sees a slow column's last value, for three periods."""
    source = Scripted(
        "s", [Column("process.memory.usage"), Column("process.thread.count", period=1.0)], clock
    )
    sampler = Sampler([source], 0.1, clock=clock)
    assert sampler.latest() is None
    source.values = [1, 7]
    sampler.tick()
    source.values = [2, None]
    clock.sleep(STALE_PERIODS)
    assert sampler.tick().values[:-1] == (2, None)
    latest = sampler.latest()
    assert latest is not None
    assert latest.values[:-1] == (2, 7)
    clock.sleep(0.1)
    sampler.tick()
    latest = sampler.latest()
    assert latest is not None
    assert latest.values[:-1] == (2, None)


def test_latest_forgets_the_slow_values_of_a_source_that_fails(clock: FakeClock) -> None:
    """What was read before the failure is not passed off as current."""
    source = Scripted("s", [Column("process.thread.count", period=1.0)], clock)
    sampler = Sampler([source], 0.1, clock=clock)
    source.values = [7]
    sampler.tick()
    source.values = OSError("gone")
    sampler.tick()
    latest = sampler.latest()
    assert latest is not None
    assert latest.values[:-1] == (None,)


def test_a_costly_source_rests_to_stay_below_its_share(clock: FakeClock) -> None:
    """20 ms of CPU a read at 10 Hz would be 20 % of a core: it is read less often, a cheap one at each tick."""
    costly = Scripted("costly", [Column("system.memory.limit")], clock, cpu=0.02)
    cheap = Scripted("cheap", [Column("process.memory.usage")], clock)
    costly.values, cheap.values = [1], [1]
    sampler = Sampler([costly, cheap], 0.1, clock=clock)
    run(sampler, clock, 100)
    assert len(cheap.reads) == 100
    assert costly.cpu * len(costly.reads) <= CPU_SHARE * 10 * 1.1
    assert len(costly.reads) >= 20
    assert sampler.health()["costly"].stretched == 100 - len(costly.reads)


def test_one_read_that_was_held_up_costs_no_figures(clock: FakeClock) -> None:
    """A host that takes the processor away for 25 ms makes no source a costly one; one that does so always, does."""
    held_up = Scripted("held up", [Column("process.memory.usage")], clock)
    held_up.values = [1]
    sampler = Sampler([held_up], 0.1, clock=clock)
    run(sampler, clock, 20)
    held_up.cpu = 0.025
    sampler.tick()
    held_up.cpu = 0.0
    run(sampler, clock, 20)
    assert sampler.health()["held up"].stretched == 0
    held_up.cpu = 0.025
    run(sampler, clock, 100)
    assert sampler.health()["held up"].stretched > 50


def test_a_source_that_rests_is_read_at_the_last_tick(clock: FakeClock) -> None:
    costly = Scripted("costly", [Column("system.memory.limit")], clock, cpu=0.5)
    costly.values = [1]
    sampler = Sampler([costly], 0.1, clock=clock)
    assert [sampler.tick(last=last).values[:-1] for last in (False, False, True)] == [(1,), (None,), (1,)]


def test_a_source_that_answers_with_the_wrong_number_of_values_is_a_defect(clock: FakeClock) -> None:
    """Values must never slip into another column."""
    source = Scripted("s", [Column("process.memory.usage")], clock)
    source.values = [1, 2]
    with pytest.raises(ValueError, match="2 values for 1"):
        Sampler([source], 0.1, clock=clock).tick()


def test_a_flag_is_waited_for_and_stays_set() -> None:
    flag = Flag()
    assert not flag.wait(0.01)
    assert not flag.is_set()
    threading.Timer(0.05, flag.set).start()
    assert flag.wait(60)
    flag.set()
    assert flag.is_set()
    assert flag.wait(0)
    assert flag.wait(60)


def test_what_idles_is_not_charged(clock: FakeClock) -> None:
    """A source that has nothing to give at a tick says so by giving its `idle`; its slow values stay."""
    source = Scripted("s", [Column("process.memory.usage", (), 1.0)], clock, cpu=0.001)
    idle: tuple[Value, ...] = (None,)
    source.idle = idle  # type: ignore[attr-defined]
    sampler = Sampler([source], 0.1, clock=clock)
    source.values = [7]
    sampler.tick()
    clock.sleep(0.1)
    source.values = idle
    sampler.tick()
    latest = sampler.latest()
    assert latest is not None
    assert latest.values[:-1] == (7,)
    assert sampler.health()["s"].reads == 2
    assert sampler.health()["s"].seconds == pytest.approx(0.001)


def test_a_flag_that_is_set_once_more_while_it_is_waited_for() -> None:
    """Two threads set it: the second may do so between the waiter's taking the lock and its giving it back."""
    flag = Flag()
    held = flag._lock

    class Meanwhile:
        def acquire(self, **given: float) -> bool:
            done = held.acquire(**given)
            flag._set = False
            flag._lock = held
            flag.set()
            return done

    flag.set()
    flag._set, flag._lock = False, Meanwhile()  # type: ignore[assignment]
    assert flag.wait(1.0)


class Hasty(Scripted):
    """A source that calls for a tick at every probe, or for none."""

    may_probe = True
    probe_after = 0.03
    calls = True
    probes = 0
    probe_cpu = 0.0001

    def probe(self, now: float) -> bool:
        self.probes += 1
        self.clock.sleep(0.0, self.probe_cpu)
        return self.calls


def test_a_source_calls_for_a_tick_and_those_that_are_due_stay_on_the_grid(clock: FakeClock) -> None:
    """Those that are called for are neither late nor missed, and no deadline is put off by them."""
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values = [1]
    seen: list[Snapshot] = []
    sampler = Sampler([source], 0.1, clock=clock)
    sampler.subscribe(seen.append)
    run(sampler, clock, 9)
    assert source.reads == pytest.approx(
        [1000.0, 1000.03, 1000.06, 1000.09, 1000.1, 1000.13, 1000.16, 1000.19, 1000.2]
    )
    assert {tick.missed for tick in seen} == {0}


def test_what_is_left_until_the_next_tick_is_not_cut_by_a_glance(clock: FakeClock) -> None:
    """So long many operations may be read; who can do with less time asks for the next look."""
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values = [1]
    sampler = Sampler([source], 0.1, clock=clock)
    sampler.tick()
    assert (sampler.left(), sampler.left_to_probe()) == (pytest.approx(0.1), pytest.approx(0.03))


def test_a_probe_alone_takes_no_tick(clock: FakeClock) -> None:
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values, source.calls = [1], False
    run(Sampler([source], 0.1, clock=clock), clock, 41)
    assert source.reads == pytest.approx([1000.0 + 0.1 * k for k in range(11)])
    assert source.probes == 30


def test_a_source_for_which_no_sample_is_worth_its_cost_is_not_probed_with_others(clock: FakeClock) -> None:
    asked, other = (Hasty(name, [Column("process.memory.usage")], clock) for name in ("asked", "other"))
    asked.values, asked.calls = other.values, other.calls = [1], False
    other.probe_after = math.inf
    run(Sampler([asked, other], 0.1, clock=clock), clock, 41)
    assert (asked.probes, other.probes) == (30, 0)


def test_a_probe_that_costs_more_is_taken_less_often(clock: FakeClock) -> None:
    """At 0.45 ms each, no more often than every 45 ms."""
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values, source.calls, source.probe_cpu = [1], False, 0.00045
    run(Sampler([source], 0.1, clock=clock), clock, 32)
    assert source.probes == pytest.approx(20, abs=2)


def test_probes_go_on_after_one_that_cost_much(clock: FakeClock) -> None:
    """5 ms, as where a busy machine finds all caches cold: it is rested from, and no more."""
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values, source.calls, source.probe_cpu = [1], False, 0.005
    sampler = Sampler([source], 0.1, clock=clock)
    run(sampler, clock, 2)
    assert source.probes == 1
    source.probe_cpu = 0.0001
    run(sampler, clock, 30)
    assert source.probes > 10


def test_ticks_that_are_called_for_have_a_budget_of_their_own(clock: FakeClock) -> None:
    """At 2 ms each, thirty use up what may be used at once; then only those that are due are left."""
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values, source.cpu = [1], 0.002
    run(Sampler([source], 0.1, clock=clock), clock, 200)
    grid = [time for time in source.reads if abs(time * 10 - round(time * 10)) < 0.01]
    most = int(CPU_ADVANCE / 0.002)
    assert most - 3 <= len([time for time in source.reads if time < 1002.5]) - 25 <= most + 3
    # 0.2 % of each second besides: one in a second
    assert len(source.reads) - len(grid) <= most + 3 + (source.reads[-1] - 1000)


def test_probes_in_long_intervals_have_a_smaller_share(clock: FakeClock) -> None:
    """A watch of hours costs 0.05 % of a core: 0.01 % for probes, the rest for regular samples."""
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values, source.calls, source.probe_cpu = [1], False, 0.001
    sampler = Sampler([source], 0.1, clock=clock, auto=AutoInterval(clock.now - 86400))
    began = clock.now
    while clock.now < began + 3600:
        sampler.tick()
        sampler.wait(threading.Event())
    assert source.probes * source.probe_cpu <= CPU_ADVANCE + 1.1 * LEAST_SHARE * 3600


def test_a_probe_that_comes_too_late_is_the_tick(clock: FakeClock) -> None:
    """The machine was busy until after the tick was due: it is taken, as late as it is."""
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values, source.calls = [1], False
    seen: list[Snapshot] = []
    sampler = Sampler([source], 0.1, clock=clock)
    sampler.subscribe(seen.append)
    sampler.tick()
    clock.sleep(0.15)
    assert not sampler.wait(threading.Event())
    sampler.tick()
    assert (seen[1].time, source.probes) == (pytest.approx(1000.15), 0)


def test_a_source_whose_probe_fails_is_read_as_before(clock: FakeClock) -> None:
    source = Hasty("s", [Column("process.memory.usage")], clock)
    source.values = [1]

    def fails(now: float) -> bool:
        source.probes += 1
        raise ValueError(now)

    source.probe = fails  # type: ignore[method-assign]
    run(Sampler([source], 0.1, clock=clock), clock, 12)
    assert source.reads == pytest.approx([1000.0 + 0.1 * k for k in range(11)])
    assert source.probes == 1


def test_what_follows_from_several_sources_is_filled_in_before_any_reader_sees_it(clock: FakeClock) -> None:
    source = Scripted("s", [Column("process.memory.usage"), Column("process.thread.count")], clock)
    source.values = [3, None]
    seen: list[Snapshot] = []
    sampler = Sampler([source], 0.1, clock=clock)
    sampler.subscribe(seen.append)
    sampler.complete = lambda _, values: values.__setitem__(1, values[0])
    sampler.tick()
    latest = sampler.latest()
    assert latest is not None
    assert seen[0].values == latest.values == (3, 3, None)


def test_a_source_with_a_pace_is_read_when_it_is_due_and_at_the_end(clock: FakeClock) -> None:
    source = Scripted("s", [Column("system.memory.limit")], clock)
    source.values, source.pace = [1], Pace(0.1, early=0.0)  # type: ignore[attr-defined]
    sampler = Sampler([source], 0.01, clock=clock)
    sampler.tick()
    source.pace.due(clock.now)  # type: ignore[attr-defined]
    clock.sleep(0.01)
    assert sampler.tick().values == (None, None)
    assert sampler.tick(last=True).values == (1, None)
    clock.sleep(0.1)
    assert sampler.tick().values == (1, None)
    assert sampler.health()["s"].stretched == 0


def test_an_early_sample_leaves_a_source_with_a_pace_due_at_the_regular_one(clock: FakeClock) -> None:
    """The host's memory was missing at the regular sample 40 ms after an early one that had read it."""
    asks = Hasty("s", [Column("process.memory.usage")], clock)
    asks.values = [1]
    paced = Scripted("host", [Column("system.memory.usage")], clock)
    paced.pace = Pace(0.1, early=0.05)  # type: ignore[attr-defined]

    def read(now: float) -> Sequence[Value]:
        paced.pace.due(now)  # type: ignore[attr-defined]
        return [2]

    paced.read = read  # type: ignore[method-assign]
    seen: list[Snapshot] = []
    sampler = Sampler([asks, paced], 0.1, clock=clock)
    sampler.subscribe(seen.append)
    run(sampler, clock, 20)
    regular = [one for one in seen if abs(one.time * 10 - round(one.time * 10)) < 0.01]
    assert len(seen) > len(regular) > 3
    assert [one.values[1] for one in regular] == [2] * len(regular)


def test_an_interval_that_follows_the_run(clock: FakeClock) -> None:
    """On the grid at first; a thousandth of the age later; short again after a change; nothing counts as missed."""
    source = Scripted("s", [Column("memwatch.tree.memory.usage")], clock)
    source.values = [100 << 20]
    sampler = Sampler([source], 0.1, clock=clock, auto=AutoInterval(clock.now))
    run(sampler, clock, 900)
    assert source.reads == pytest.approx([1000.0 + 0.1 * k for k in range(900)])
    while clock.now < 1000.0 + 20_000:
        run(sampler, clock, 100)
    del source.reads[:]
    run(sampler, clock, 4)
    source.values = [200 << 20]
    run(sampler, clock, 5)
    gaps = [after - before for before, after in zip(source.reads, source.reads[1:], strict=False)]
    assert gaps == pytest.approx([10, 10, 10, 0.1, 0.15, 0.225])
    assert sampler.missed == 0
    late = sampler.joined_by([Scripted("t", [Column("system.memory.limit")], clock)])
    assert late.left() == pytest.approx(sampler.left())


class Resting(Scripted):
    """A source that repeats its values up to a time."""

    until = math.inf
    noted: Sequence[bytes | None] = ()

    def repeats(self) -> Repetition | None:
        file = WatchedFile(3, (b"same",))
        return Repetition(self.until, self.values, (file, file)) if self.until else None  # type: ignore[arg-type]

    def note_repeated(self, contents: Sequence[bytes | None]) -> None:
        self.noted = contents


def test_repeated_samples_have_the_values_of_sources_that_rest_and_of_no_other(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Resting("t", [Column("process.memory.usage"), Column("process.uptime", (), 0.5)], clock)
    host = Scripted("h", [Column("system.memory.usage")], clock)
    host.pace = pace = Pace(1.0, early=0.05)  # type: ignore[attr-defined]
    tree.values, host.values = [7, None], [8]
    sampler = Sampler([tree, host], 0.1, clock=clock)
    seen: list[tuple[object, ...]] = []

    def take(*given: Any) -> RepeatedTimes:
        seen.append(given)
        first = given[0]
        clock.now = first + 0.21
        return [first, first + 0.1, first + 0.21], first + 0.3, 0.001, [b"a", None], b"rest"

    monkeypatch.setattr(repeated, "take_repeated", take)

    def describe(values: Sequence[Value]) -> tuple[int, bytes]:
        return 5, repr(list(values)).encode()

    assert sampler.repeat(math.inf, 4, describe) == ([], b""), "there is no sample yet"
    sampler.tick()
    pace.next = 1000.95
    taken, unwritten = sampler.repeat(math.inf, 4, describe)
    assert [snapshot.values for snapshot in taken] == [(7, None, None, None)] * 3
    assert [snapshot.time for snapshot in taken] == pytest.approx([1000.1, 1000.2, 1000.31])
    assert taken[0].wall - taken[0].time == pytest.approx(1_700_000_000.0)
    assert unwritten == b"rest"
    deadline, interval, until, _, alarm, output, text, files, _ = seen[0]
    assert (deadline, interval, until) == (1000.1, 0.1, 1000.95)
    assert (alarm, output, text, len(files)) == (4, 5, b"[7, None, None, None]", 2)  # type: ignore[arg-type]
    assert (sampler.ticks, sampler.last_time, tree.noted) == (4, taken[-1].time, [b"a", None])
    assert sampler.health()["t"].reads == 4
    assert sampler.left() == pytest.approx(0.09)
    for obstacle in ("until", "rests", "failed", "complete"):
        tree.until = 0 if obstacle == "until" else 1000.35 if obstacle == "rests" else math.inf
        sampler._readers[0].up = obstacle != "failed"
        sampler.complete_repeated = lambda _, off=obstacle == "complete": not off  # type: ignore[misc]
        assert sampler.repeat(math.inf, 4, describe) == ([], b""), obstacle
    assert sampler.repeat(1000.4, 4, describe) == ([], b"")
    assert len(seen) == 1
