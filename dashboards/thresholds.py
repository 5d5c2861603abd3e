"""Every threshold of dashboards and alerts, in one place; each says when one would change it."""

from __future__ import annotations

LIMIT_WARNING = 0.8
"""Share of the memory limit that is drawn in yellow. Lower it where reclaim hurts before the kill."""

LIMIT_NEAR = 0.9
"""Share of the memory limit that alerts. Raise it for jobs that are sized tightly on purpose."""

LIMIT_SOON_SECONDS = 1800
"""An alert comes when the limit is this near in time at the present growth. It is the time that somebody needs to act."""

LIMIT_SOON_SHARE = 0.5
"""Below this share of the limit growth does not alert: most jobs grow while they load."""

GROWTH_STEP = 1.05
"""Growth of the floor from window to window that counts as a leak. Raise it for caches that fill for days."""

GROWTH_WINDOW = "30m"
"""Window of which the smallest value is the floor; three in a row have to grow. Longer than one epoch of a job."""

GPU_MEMORY_NEAR = 0.95
"""Share of a GPU's memory that alerts. Allocators that keep what they had (JAX, TensorFlow) take 0.75 to 0.9 at once."""

GPU_IDLE = 0.05
"""Utilization below which a GPU counts as idle."""

GPU_IDLE_WINDOW = "30m"
"""For so long a GPU has to be idle. Longer than the slowest load of data or compilation."""

GPU_HELD = 0.1
"""Share of a GPU's memory from which on it counts as held."""

MISSED_TICKS = 0.1
"""Share of the monitor's ticks that may be missed before its curve is said to have holes."""

SILENT_WINDOW = "15m"
"""How far back a run that was active is looked for. Longer than the longest pause of your pushes."""

RULE_SECONDS = 30
"""Time between two evaluations of the recording rules. Ended runs are counted by it, each at one evaluation."""

ARRIVAL_SECONDS = 120
"""A run that ended is counted so long after its end: by then its last values have arrived. Longer where clocks differ more."""

RECENT_SECONDS = 900
"""For so long the last values of a run that has ended alert. A textfile keeps them until somebody deletes it."""

REGRESSION = 1.2
"""Today's peak of a service against the largest of the seven days before. Nearer to 1 where inputs do not change."""

RANKS_SHOWN = 256
"""Ranks that a group may have for each to have a recorded series."""
RANKS_OF_MANY = 16
"""Ranks of a larger group that have one: those that need most."""
