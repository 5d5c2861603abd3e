"""Blocks that fail, blocks too short for a tick, and mistakes."""

import pytest

from otel_memwatch.compat.nncf import MemoryMonitor, MemoryType, MemoryUnit, memory_monitor_context

with pytest.raises(KeyError) as caught, memory_monitor_context(return_max_value=False) as context:
    raise KeyError("mine")
assert caught.value.args == ("mine",)
times, memory = context.memory_data[MemoryType.RSS]
assert times[0] == 0
assert memory[0] == 0
assert len(times) >= 2
monitor = MemoryMonitor(interval=None, memory_unit=MemoryUnit.KB, include_child_processes=False)
assert monitor.get_data() == ([], [])
monitor.stop()
with monitor as same:
    assert same is monitor
    with pytest.raises(Exception, match=r"^Monitoring already in progress$"):
        monitor.start()
first = monitor.get_data()
assert first == monitor.get_data()
assert first[1][0] > 5000
assert monitor.get_data(memory_from_zero=True)[1][0] == 0
with pytest.raises(ValueError, match=r"^Unknown memory type to log$"):
    MemoryMonitor(memory_type="rss")
