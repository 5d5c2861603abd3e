"""So many operations as fast as can be, then nothing until the file given exists."""

import pathlib
import sys
import time

from otel_memwatch.in_target.operations import operation

for _ in range(int(sys.argv[1])):
    with operation("Step"):
        pass
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.05)
