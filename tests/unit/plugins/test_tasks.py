"""Tasks that run alone and beside each other in one process, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_memwatch.in_target.operations import activate, deactivate
from otel_memwatch.in_target.operations.process_state import local_counter_error
from otel_memwatch.plugins.tasks import NamedTasks, TaskFigures, TaskMeter, by_name, table
from otel_memwatch.runtime.exactness import is_exact

MIB = 1 << 20


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Path]:
    activate(str(tmp_path))
    yield tmp_path
    deactivate()


@pytest.mark.usefixtures("recorded")
def test_a_task_alone_has_the_peak_of_its_operation() -> None:
    meter = TaskMeter()
    task = meter.begin("load", {"key": "load-1"})
    held = bytearray(40 * MIB)
    figures = meter.end(task)
    del held
    assert (figures.beside, figures.failed) == (0, False)
    assert figures.low is not None
    assert figures.high is not None
    assert figures.exact == is_exact((figures.low + figures.high) // 2, figures.low, figures.high)
    assert figures.high - figures.low <= 2 * local_counter_error() + MIB
    after = meter.end(meter.begin("nothing", {}))
    assert after.high is not None
    if figures.high < _address_space():  # as large as that with the error of 256 processors, both times
        assert figures.high - after.high == pytest.approx(40 * MIB, abs=4 * MIB)


def _address_space() -> int:
    """Return the largest size of this process's address space, in bytes."""
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmPeak:")
    ]
    return int(line.split()[1]) << 10


@pytest.mark.usefixtures("recorded")
def test_a_task_beside_another_has_what_it_had_alone_as_its_least() -> None:
    meter = TaskMeter()
    first = meter.begin("first", {})
    own = bytearray(30 * MIB)
    second = meter.begin("second", {})
    others = bytearray(50 * MIB)
    begun = meter.end(meter.begin("third", {}))
    del others
    ended = meter.end(second)
    last = meter.end(first)
    del own
    assert (begun.beside, ended.beside, last.beside) == (2, 2, 2)
    assert last.low is not None
    assert last.high is not None
    # 30 MiB were there before the second began, 80 while both ran.
    doubt = 2 * local_counter_error()
    assert last.high - last.low == pytest.approx(50 * MIB, abs=4 * MIB + doubt)
    assert ended.high == pytest.approx(last.high, abs=2 * MIB)
    assert not any(task.exact for task in (last, ended, begun))
    assert ended.low == 0, "it was never alone"
    assert begun.low == 0


def test_nothing_is_known_outside_a_run() -> None:
    deactivate()
    meter = TaskMeter()
    figures = meter.end(meter.begin("load", {}), KeyError("x"))
    assert figures[2:] == (None, None, 0, True, False)


def test_tasks_of_a_name_are_one_row() -> None:
    groups = by_name(
        [
            TaskFigures("load", 1.0, 100 * MIB, 100 * MIB, 0, exact=True),
            TaskFigures("load", 2.0, 90 * MIB, 140 * MIB, 2, failed=True),
            TaskFigures("sum", 0.5, None, None, 0),
        ]
    )
    assert groups["load"] == NamedTasks("load", 2, 1, 1, 3.0, 100 * MIB, 140 * MIB, 100 * MIB)
    assert not groups["load"].exact
    assert groups["sum"].low is None
    assert not groups["sum"].exact
    again = by_name([TaskFigures("load", 1.0, 150 * MIB, 150 * MIB, 0, exact=True)], groups)
    assert again["load"].exact
    assert table(again.values()).splitlines()[1:] == [
        "load                                  3          150.0 MiB exact     4.00s",
        "sum                                   1                not known     0.50s",
    ]
