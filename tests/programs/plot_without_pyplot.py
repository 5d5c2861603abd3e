"""Draws a run, and looks whether pyplot was loaded, which is the program's own."""

import sys

from otel_memwatch.reports import write
from otel_memwatch.run import load

write("plot", load(sys.argv[1]), sys.argv[2])
assert "matplotlib.pyplot" not in sys.modules
