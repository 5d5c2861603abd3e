"""Groups: the runs of one job on several ranks or hosts, as one."""

from __future__ import annotations
