"""Cells that grow, free and fail, and their figures as objects."""

from otel_memwatch.compat import ipython as imu
from tests.support import counters
from tests.support.ipython_shell import cell

cell("%load_ext otel_memwatch")

assert imu.last is None
assert imu.history == []
cell("%imu_start")
cell("x = bytearray(100 << 20)")
cell("del x")
cell("1/0")
cell("this is no python")
last, *_ = imu.history[::-1]
assert imu.last is last
assert len(imu.history) == 5
grow, free, failed = imu.history[1:4]
assert 99 < grow.memory_delta < 101
assert grow.certainty == counters.of_process(150 << 20)
assert grow.source == "x = bytearray(100 << 20)"
assert -101 < free.memory_delta < -99
assert 99 < free.memory_peak < 101
assert failed.failed
assert last.failed
assert not free.failed
assert failed.time_delta == failed.seconds
assert failed.memory_usage * 2**20 == failed.current
text = str(imu.summary())
assert text.splitlines()[1].split()[0] in ("3", "4"), text
assert "1/0 (failed)" in text, text
html = imu.summary()._repr_html_()
assert html.count("<tr>") == 6, html
assert "x = bytearray(100 &lt;&lt; 20)" in html, html
cell("%imu_summary")
