"""The catalogue as OpenTelemetry instruments. Their callbacks look at a `Frame`, never at the machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from opentelemetry.metrics import CallbackOptions, Observation

from otel_memwatch import catalog
from otel_memwatch.catalog import BOUNDS, METRICS, Instrument
from otel_memwatch.monitor.telemetry.frame import Frame, Series
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter


def create_instruments(
    meter: Meter, frame: Frame, without: Collection[str] = ()
) -> tuple[Histogram, Histogram]:
    """Creates all observable instruments on `meter` but `without`; gives the histograms of operation duration and peak.

    The number of series is fixed by the columns and by what `Frame` bounds, whatever the tree does. Metrics of
    the catalogue for which the run has no source do not appear.
    """
    _observe(
        meter,
        catalog.MEMWATCH_SAMPLER_TICKS,
        _pinning(frame, frame.own_series()[catalog.MEMWATCH_SAMPLER_TICKS]),
    )
    indexes: dict[str, list[int]] = {}
    for index, column in enumerate(frame.columns):
        indexes.setdefault(column.metric, []).append(index)
    for metric, where in indexes.items():
        _observe(meter, metric, _columns(frame, where))
    for metric, series in frame.own_series().items():
        if metric not in indexes and metric not in without and metric != catalog.MEMWATCH_SAMPLER_TICKS:
            _observe(meter, metric, series)
    return (
        _histogram(meter, catalog.MEMWATCH_OPERATION_DURATION),
        _histogram(meter, catalog.MEMWATCH_OPERATION_MEMORY_PEAK),
    )


def _pinning(frame: Frame, series: Callable[[], Iterable[Series]]) -> Callable[[], Iterator[Series]]:
    """The SDK calls callbacks one after another in the order of creation: the first fixes the moment for all."""

    def pinned() -> Iterator[Series]:
        frame.pin()
        yield from series()

    return pinned


def _columns(frame: Frame, indexes: list[int]) -> Callable[[], Iterator[Series]]:
    attributes = {index: dict(frame.columns[index].attributes) for index in indexes}

    def series() -> Iterator[Series]:
        for index in indexes:
            yield frame.column(index), attributes[index]

    return series


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
