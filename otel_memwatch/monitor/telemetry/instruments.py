"""The catalogue as OpenTelemetry instruments. Their callbacks read a `Frame`, never the machine."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial

from opentelemetry.metrics import CallbackOptions, Observation

from otel_memwatch.catalog import BOUNDS, METRICS, Instrument
from otel_memwatch.monitor.telemetry.frame import Frame, Series
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter

    from otel_memwatch.model import Column


def create_instruments(meter: Meter, frame: Frame, chosen: Container[str]) -> Mapping[str, Histogram]:
    """Create the instruments of all `chosen` metrics on `meter`; return the histograms by name.

    The columns and the bounds of `Frame` fix the number of series, for any process tree. Metrics of the catalogue
    without a source in the run do not appear.
    """
    every = {**frame.own_series(), **_of_columns(frame)}
    found = [(name, series) for name, series in every.items() if name in chosen]
    for number, (name, series) in enumerate(found):
        _observe(meter, name, series if number else _pinning(frame, series))
    return {name: _histogram(meter, name) for name in BOUNDS if name in chosen}


def join_columns(meter: Meter, frame: Frame, chosen: Container[str], columns: Sequence[Column]) -> None:
    """Export `columns`: those so far, and others behind them.

    A metric that already has an instrument gets more series; any other metric gets an instrument.
    """
    before = frame.metrics()
    frame.set_columns(columns)
    for name, series in _of_columns(frame).items():
        if name in chosen and name not in before:
            _observe(meter, name, series)


def _of_columns(frame: Frame) -> dict[str, Callable[[], Iterator[Series]]]:
    return {name: partial(frame.series_of, name) for name in frame.metrics()}


def _pinning(frame: Frame, series: Callable[[], Iterable[Series]]) -> Callable[[], Iterator[Series]]:
    """Return the first instrument's callback, which pins the frame for all: the SDK calls them in creation order."""

    def pinned() -> Iterator[Series]:
        frame.pin()
        yield from series()

    return pinned


def _observe(meter: Meter, name: str, series: Callable[[], Iterable[Series]]) -> None:
    metric = METRICS[name]
    create: Mapping[Instrument, Any] = {
        Instrument.COUNTER: meter.create_observable_counter,
        Instrument.UP_DOWN_COUNTER: meter.create_observable_up_down_counter,
        Instrument.GAUGE: meter.create_observable_gauge,
    }

    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        try:
            return [Observation(value, attributes) for value, attributes in series() if value is not None]
        except Exception:  # noqa: BLE001 - the SDK would log a traceback at every collection
            return []

    create[metric.instrument](metric.name, [callback], unit=metric.unit, description=metric.description)


def _histogram(meter: Meter, name: str) -> Histogram:
    metric = METRICS[name]
    return meter.create_histogram(
        metric.name,
        unit=metric.unit,
        description=metric.description,
        explicit_bucket_boundaries_advisory=BOUNDS[name],
    )
