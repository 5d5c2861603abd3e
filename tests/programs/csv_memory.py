"""Writes a run as CSV, and prints this process's largest resident memory in KiB."""

import resource
import sys

from otel_memwatch.reports import write
from otel_memwatch.run import load

write("csv", load(sys.argv[1]), "/dev/null")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
