"""OTLP's JSON form of attributes, resources and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def request(run: RecordedRun, signal: str, key: str, items: Iterable[Json]) -> Json:
    """Return a complete request: items of one signal below the run's resource and our scope.

    Args:
        run: the run.
        signal: "Metrics", "Spans" or "Logs", as in "resourceSpans".
        key: field of the items: "metrics", "spans" or "logRecords".
        items: metrics, spans or log records.
    """
    scope = {"name": SCOPE, "version": __version__}
    return {
        f"resource{signal}": [
            {
                "resource": {"attributes": attributes(resource_of(run.info))},
                f"scope{signal}": [{"scope": scope, key: list(items), "schemaUrl": SCHEMA_URL}],
                "schemaUrl": SCHEMA_URL,
            }
        ]
    }


class Times:
    """Times of a run in OTLP's form: nanoseconds since 1970, as text."""

    def __init__(self, run: RecordedRun) -> None:
        self._offset = run.started_wall - run.started
        self.start = self.of(run.started)
        self.end = self.of(run.started + run.seconds)

    def of(self, monotonic: float) -> str:
        """Convert monotonic seconds."""
        return str(round((monotonic + self._offset) * 1e9))
