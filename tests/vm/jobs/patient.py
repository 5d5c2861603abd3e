"""`otel-memwatch` that waits for the service manager as long as an emulated machine needs, some 20 times a real one.

PATIENCE_FACTOR is how much longer it waits than it does elsewhere.
"""

from __future__ import annotations

import os
import sys

from otel_memwatch.cli import main
from otel_memwatch.monitor.run_cgroup import service_manager

service_manager.PATIENCE *= float(os.environ.get("PATIENCE_FACTOR", "60"))
if sys.argv[1] == "wrap":
    os.environ.setdefault("OTEL_MEMWATCH_PLOT", "0")  # ten seconds a run
sys.argv[0] = "otel-memwatch"
sys.exit(main())
