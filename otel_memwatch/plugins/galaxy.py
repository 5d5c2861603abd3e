"""Galaxy: memory of each job, with its certainty, as job metrics.

Galaxy finds plugins among the modules of `galaxy.job_metrics.instrumenters`:

1. Create a file there with the lines `from otel_memwatch.plugins.galaxy import *` and `__all__ = ("MemwatchPlugin",)`.
2. Add `- type: memwatch` to `job_metrics_conf.yml`.
3. Use our shell for the jobs (`default_job_shell`, or `shell` of a destination): `otel-memwatch shell --install`.

Jobs with another shell are not recorded and have no metrics.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

from galaxy.job_metrics.formatting import FormattedMetric, JobMetricFormatter
from galaxy.job_metrics.instrumenters import InstrumentPlugin

from otel_memwatch.record.format import FINISHED, RUN_DIRECTORY_VARIABLE, RUN_FILE
from otel_memwatch.run.results import Peaks
from otel_memwatch.runtime.typed import Any
from otel_memwatch.text import peak_sentence, size

_PATIENCE = 2.0
"""Seconds to wait for the end of a record after Galaxy considers the job ended: its exit code exists earlier."""

_TITLES = {
    "memory": "Memory needed",
    "memory_bytes": "Memory needed, best figure",
    "memory_low_bytes": "Memory needed, at least",
    "memory_high_bytes": "Memory needed, at most",
    "cpu_seconds": "CPU time",
    "run": "Recorded run",
}


class _Formatter(JobMetricFormatter):
    """Readable titles and units."""

    def format(self, key: str, value: Any) -> FormattedMetric:
        if key.endswith("_bytes"):
            value = size(int(value))
        elif key == "cpu_seconds":
            value = f"{float(value):.1f} s"
        return FormattedMetric(_TITLES.get(key, key), str(value))


class MemwatchPlugin(InstrumentPlugin):
    """Metrics `memwatch` of a job."""

    plugin_type = "memwatch"
    formatter = _Formatter()

    def __init__(self, **_settings: Any) -> None:
        return

    def pre_execute_instrument(self, job_directory: str) -> str:
        """Return a shell line by which the job's script notes its run directory; empty if it is not recorded."""
        return f'echo "${{{RUN_DIRECTORY_VARIABLE}-}}" > {shlex.quote(self._noted(job_directory))}'

    def job_properties(self, job_id: Any, job_directory: str) -> dict[str, Any]:  # noqa: ARG002 - Galaxy's signature
        """Return the figures of the job's record, if one exists. Raises `FileNotFoundError`, which Galaxy logs in a line."""
        run = Path(self._noted(job_directory)).read_text(encoding="utf-8", errors="surrogateescape").strip()
        if not run:
            return {}
        # The record stays incomplete if, for example, its monitor was killed.
        until = time.monotonic() + _PATIENCE
        while True:
            text = Path(run, RUN_FILE).read_text(encoding="utf-8", errors="surrogateescape")
            info: dict[str, Any] = json.loads(text)
            if info.get("state") == FINISHED or time.monotonic() > until:
                break
            time.sleep(0.05)
        peak = Peaks.from_json(info.get("peaks") or {}).tree
        found = {"run": run, "cpu_seconds": (info.get("totals") or {}).get("cpu_seconds")}
        if peak is not None:
            found |= {
                "memory": peak_sentence(peak, source=False),
                "memory_bytes": peak.bytes,
                "memory_low_bytes": peak.low,
                "memory_high_bytes": peak.high,
            }
        return {key: value for key, value in found.items() if value is not None}

    def _noted(self, job_directory: str) -> str:
        return str(self._instrument_file_path(job_directory, "run"))


__all__ = ("MemwatchPlugin",)
