"""GPU memory of operations, from the reports of allocators at operation boundaries."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.estimates import largest_sample
from otel_memwatch.truth.operation import allocator_peak

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.model import RecordedOperation
    from otel_memwatch.run.results import OperationFigures


class AllocatorFigures(NamedTuple):
    """The memory that one allocator held on one device during one operation, in bytes. `None`: not reported."""

    device: str
    allocator: str
    peak: Peak
    """Memory in tensors, or in the library's equivalent."""
    reserved_peak: int | None
    """Lower bound of the peak of memory held from the device."""
    ooms: int | None
    retries: int | None
    fragmentation: int | None
    """Held from the device but not handed out, at the operation's end."""


def allocator_figures(operation: RecordedOperation) -> list[AllocatorFigures]:
    """Return the figures of an operation, by device; entries in an unknown form are omitted."""
    found = []
    for device, reported in operation.gpu.items():
        if not isinstance(reported, dict):
            continue
        low, high = _whole(reported.get("low")), _whole(reported.get("high"))
        if low is None:
            continue
        exact = reported.get("certainty") == Certainty.EXACT.value
        name = str(reported.get("allocator") or "unknown")
        peak = allocator_peak(low, high, name, exact=exact)
        rest = [_whole(reported.get(key)) for key in ("reserved_peak", "ooms", "retries", "fragmentation")]
        found.append(AllocatorFigures(str(device), name, peak, *rest))
    return found


class RepeatedUse(NamedTuple):
    """GPU memory of the operations of one name on one device."""

    first: OperationFigures
    last: OperationFigures
    times: int
    figures: AllocatorFigures
    """Largest values of all repeats; failed and repeated allocations are summed up."""


def by_name(listed: Iterable[OperationFigures]) -> list[RepeatedUse]:
    """Return the GPU memory of operations by name and device, in the order of the first ones.

    A number at the end of a name does not count, as in the table of operations.
    """
    found: dict[tuple[str, str], list[tuple[OperationFigures, AllocatorFigures]]] = {}
    for operation in listed:
        for figures in allocator_figures(operation.operation):
            found.setdefault((series_name(operation.operation.name), figures.device), []).append(
                (operation, figures)
            )
    return [
        RepeatedUse(
            repeats[0][0], repeats[-1][0], len(repeats), _largest([figures for _, figures in repeats])
        )
        for repeats in found.values()
    ]


def _largest(repeats: Sequence[AllocatorFigures]) -> AllocatorFigures:
    lows, highs = [one.peak.low or 0 for one in repeats], [one.peak.high for one in repeats]
    bounded = [high for high in highs if high is not None]
    high = max(bounded) if len(bounded) == len(highs) else None
    first, name = repeats[0], repeats[0].allocator
    ooms, retries = ([getattr(one, key) or 0 for one in repeats] for key in ("ooms", "retries"))
    return AllocatorFigures(
        first.device,
        name,
        allocator_peak(max(lows), high, name, exact=True),
        max((one.reserved_peak for one in repeats if one.reserved_peak is not None), default=None),
        sum(ooms),
        sum(retries),
        max((one.fragmentation for one in repeats if one.fragmentation is not None), default=None),
    )


def raised_by_allocators(
    peaks: Mapping[str, Peak], operations: Iterable[RecordedOperation], started: float
) -> Mapping[str, Peak]:
    """Return the peaks of devices, raised if an allocator held more than any sample saw, or if no sample saw the device.

    Args:
        peaks: by device, from samples.
        operations: of the whole run.
        started: of the run, in monotonic seconds.
    """
    result = dict(peaks)
    shortest_first = sorted(
        operations, key=lambda operation: (operation.end or float("inf")) - operation.start
    )
    for operation in shortest_first:
        for figures in allocator_figures(operation):
            held = max(figures.peak.bytes, figures.reserved_peak or 0)
            device = _device(figures.device, peaks)
            known = result.get(device)
            if held > (known.bytes if known else 0):
                at = None if operation.end is None else round(operation.end - started, 4)
                peak = largest_sample(held, at=at, source=f"held by {figures.allocator}")
                result[device] = peak._replace(pid=operation.pid, operation=operation.name)
    return result


def used_by_libraries(
    peaks: Mapping[str, Peak], operations: Iterable[RecordedOperation], *, complete: bool
) -> dict[str, Peak]:
    """Return the most memory that GPU libraries handed out during operations, by device.

    Processes and libraries on one device may have reached their peaks at different times: the upper bound is their sum.

    Args:
        peaks: by device, from samples.
        operations: of the whole run.
        complete: false if the largest operation of some process is missing, so no upper bound is known.
    """
    found: dict[str, dict[tuple[int, str], list[AllocatorFigures]]] = {}
    for operation in operations:
        for figures in allocator_figures(operation):
            holders = found.setdefault(_device(figures.device, peaks), {})
            holders.setdefault((operation.pid, figures.allocator), []).append(figures)
    result = {}
    for device, holders in found.items():
        largest = [_largest(repeats).peak for repeats in holders.values()]
        highs = [peak.high for peak in largest if peak.high is not None]
        high = sum(highs) if complete and len(highs) == len(largest) else None
        names = {allocator for _, allocator in holders}
        low = max(peak.low or 0 for peak in largest)
        result[device] = allocator_peak(low, high, "+".join(sorted(names)), exact=True)
    return result


def _device(name: str, devices: Mapping[str, Peak]) -> str:
    """Return the device that an allocator means, if the driver reported it; else the allocator's name for it.

    JAX and TensorFlow count the devices that a process may use, from 0. That names a device only if there is just one.
    """
    plain = name.removesuffix(" cupy")
    first = plain.rpartition(":")[2] == "0"
    return next(iter(devices)) if first and len(devices) == 1 else plain if plain in devices else name


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
