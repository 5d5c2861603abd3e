"""Every threshold of dashboards and alerts, in one place; with the reason to change each."""

from __future__ import annotations

LIMIT_WARNING = 0.8
"""Share of the memory limit that is drawn in yellow. Lower it if reclaim slows your jobs before the kill."""

LIMIT_NEAR = 0.9
"""Share of the memory limit that alerts. Raise it for jobs with deliberately tight limits."""

LIMIT_SOON_SECONDS = 1800
"""An alert fires if the present growth reaches the limit within this time. It is the time that people need to react."""

LIMIT_SOON_SHARE = 0.5
"""Below this share of the limit, growth does not alert, because most jobs grow while they load."""

GROWTH_STEP = 1.05
"""Growth of the floor from window to window that counts as a leak. Raise it for caches that fill for days."""

GROWTH_WINDOW = "30m"
"""Window for the floor (its smallest value); three in a row must grow. Make it longer than one epoch of a job."""

GPU_MEMORY_NEAR = 0.95
"""Share of a GPU's memory that alerts. Allocators that keep freed memory (JAX, TensorFlow) take 0.75 to 0.9 at once."""

GPU_IDLE = 0.05
"""Utilization below which a GPU counts as idle."""

GPU_IDLE_WINDOW = "30m"
"""Time that a GPU must be idle. Make it longer than the slowest data load or compilation."""

GPU_HELD = 0.1
"""Share of a GPU's memory above which the GPU counts as held."""

MISSED_TICKS = 0.1
"""Share of missed samples above which an alert reports holes in the curve."""

SILENT_WINDOW = "15m"
"""Time to look back for active runs and their counters. Make it longer than the longest pause between pushes."""

RULE_SECONDS = 30
"""Time between two evaluations of the recording rules. Each ended run and closed operation is counted at one evaluation."""

ARRIVAL_SECONDS = 120
"""Delay before an ended run or operation is counted, for its last values to arrive. Raise it if clocks differ more."""

RECENT_SECONDS = 900
"""Time during which the last values of an ended run can alert. A textfile keeps them until it is deleted."""

REGRESSION = 1.2
"""Today's peak of a service relative to the largest of the seven days before. Set it closer to 1 if inputs do not change."""

RANKS_SHOWN = 256
"""Largest group with a recorded series for every rank."""
RANKS_OF_MANY = 16
"""Number of recorded ranks of a larger group: those with the largest peaks."""
