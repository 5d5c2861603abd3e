"""OTLP's JSON form of attributes, resources and times."""

from __future__ import annotations

from collections.abc import Mapping

from otel_memwatch._version import __version__
from otel_memwatch.run.spans import SCHEMA_URL, SCOPE, resource_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.run import RecordedRun

Json = dict[str, Any]


def attributes(items: Mapping[str, Any]) -> list[Json]:
    """Return attributes as a list of keys and values."""
    return [{"key": name, "value": _value(value)} for name, value in items.items()]


def _value(value: Any) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value).encode("utf-8", "replace").decode()}


def resource(run: RecordedRun) -> Json:
    """Return the resource of the run."""
    return {"attributes": attributes(resource_of(run.info))}


def scope() -> Json:
    """Return the instrumentation scope."""
    return {"name": SCOPE, "version": __version__}


class Times:
    """Times of a run in OTLP's form: nanoseconds since 1970, as text."""

    def __init__(self, run: RecordedRun) -> None:
        self._offset = run.started_wall - run.started
        self.start = self.of(run.started)
        self.end = self.of(run.started + run.seconds)

    def of(self, monotonic: float) -> str:
        """Convert monotonic seconds."""
        return str(round((monotonic + self._offset) * 1e9))


__all__ = ["SCHEMA_URL", "Json", "Times", "attributes", "resource", "scope"]
