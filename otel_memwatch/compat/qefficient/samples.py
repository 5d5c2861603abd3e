"""Configuration and samples as the older profiler had them; "MB" are 2**20 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass
class ProfilerConfig:
    """Settings of a profiler."""

    sampling_interval: float = 0.2
    """Seconds between samples."""
    output_file: str | None = None
    verbose: bool = False
    enable_cpu_monitoring: bool = True
    enable_disk_monitoring: bool = True
    track_child_processes: bool = True
    child_scan_interval: float = 1.0
    """Taken and not used: children are seen at every sample."""


@dataclass
class ProfileSample:
    """One moment. `disk_*` are bytes passed to read and write calls, pipes and cached files included."""

    timestamp: datetime
    rss_mb: float
    vms_mb: float
    cpu_percent: float = 0.0
    """Of all processors that the program may use."""
    disk_read_mb: float = 0.0
    disk_write_mb: float = 0.0
    disk_read_rate: float = 0.0
    """MB a second since the sample before."""
    disk_write_rate: float = 0.0
    storage_read_mb: float = 0.0
    """Read from storage: cached files and pipes are not in it."""
    storage_write_mb: float = 0.0
