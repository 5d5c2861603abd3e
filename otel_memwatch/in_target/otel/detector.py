"""Resource detector for OpenTelemetry programs: container, Kubernetes, Slurm, and the run they belong to.

Entry point `memwatch` of `opentelemetry_resource_detector`: `OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=memwatch`.
"""

from __future__ import annotations

import os

from opentelemetry.sdk.resources import Resource, ResourceDetector

from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE
from otel_memwatch.record.resource import surroundings_attributes


class MemwatchResourceDetector(ResourceDetector):
    """Resource detector for the program's surroundings and, under `otel-memwatch`, its run."""

    def detect(self) -> Resource:
        """Return the attributes. Reads a few small files and never raises."""
        attributes = dict(surroundings_attributes(os.environ))
        directory = os.environ.get(RUN_DIRECTORY_VARIABLE)
        if directory:
            attributes["memwatch.run.id"] = os.path.basename(directory.rstrip("/"))
        return Resource(attributes)
