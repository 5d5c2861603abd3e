"""What the benchmark of the gate shows holds, by the runs that are recorded with it; its full table takes a minute."""

from __future__ import annotations

from tests.bench.gate.__main__ import RESULTS, read, table


def test_false_alarms_and_power_are_as_promised() -> None:
    found = table(read(RESULTS), comparisons=60)
    assert found.holds, "\n".join(found.lines)
    assert sum("yes" in line for line in found.lines) == 9
