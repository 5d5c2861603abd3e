"""Calls to each device, in one table: a call with its columns, and for each column the getter from the answer.

Costs on a 4090 laptop, from MangoHud's maintainers: memory 12 us, utilization 2.5 us, process list 4 500 us. On an H200:
utilization 5.1 ms, energy 3.2 ms, power 0.7 ms, memory 0.12 ms, processes 0.09 ms. A slow call holds a lock that the watched program needs too. Hence:

- few calls a second, and slow calls rarely;
- the driver's sample buffers and counters instead of frequent polling.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_memwatch.model import Attributes
    from otel_memwatch.monitor.sampling.sources import Row
    from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import Device, Driver

GPU: Attributes = (("hw.type", "gpu"),)
RECEIVE: Attributes = (("network.io.direction", "receive"),)
TRANSMIT: Attributes = (("network.io.direction", "transmit"),)

KIB = 1024
_PCIE_SENT, _PCIE_RECEIVED = 197, 198
"""NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES of nvml.h: nvidia-ml-py names them since 12.555."""
OFTEN, FAST, SLOW, AT_GROWTH = range(4)
"""Paces of calls. The last one is that of process lists because of growth."""
_ALL_LINKS = 0xFFFFFFFF
"""Scope of a field: the sum over all NVLinks."""


class Call(NamedTuple):
    """One question to the driver."""

    name: str
    """Name in the account of costs."""
    ask: Callable[[Driver, Device], Any]
    """Return an answer; `None`: the device will never answer. Raises the library's errors."""
    columns: tuple[Row[Any], ...]
    pace: int = FAST
    """`OFTEN`: asked five times a second; `FAST`: once; `SLOW`: every five seconds."""
    at_growth: bool = False
    """Asked at once if the device's memory has grown."""
    instances: bool = False
    """A MIG instance answers for itself."""
    offline: bool = False
    """Answered without the driver: at every poll, also for a lost device."""


def memory(driver: Driver, device: Device) -> Any | None:
    """Return total, used, free and reserved bytes. The first version of the call counts reserved memory as used."""
    info = driver.ask("nvmlDeviceGetMemoryInfo", device.handle, driver.nvml.nvmlMemory_v2)
    return driver.ask("nvmlDeviceGetMemoryInfo", device.handle) if info is None else info


class _Utilization(NamedTuple):
    """Busy share of the cores and of the memory controller since the last call; the current shares without samples."""

    cores: float | None
    memory: float | None


def _utilization(driver: Driver, device: Device) -> _Utilization | None:
    nvml = driver.nvml
    cores = _samples(driver, device, nvml.NVML_GPU_UTILIZATION_SAMPLES)
    memory = _samples(driver, device, nvml.NVML_MEMORY_UTILIZATION_SAMPLES)
    if cores is not None and memory is not None:
        return _Utilization(_mean(cores, 100), _mean(memory, 100))
    rates = driver.ask("nvmlDeviceGetUtilizationRates", device.handle)
    return None if rates is None else _Utilization(rates.gpu / 100, rates.memory / 100)


class _Power(NamedTuple):
    """Mean and largest power in watts since the last call; without samples, only the current power."""

    mean: float | None
    largest: float | None


def _power(driver: Driver, device: Device) -> _Power | None:
    samples = _samples(driver, device, driver.nvml.NVML_TOTAL_POWER_SAMPLES)
    if samples is not None:
        return _Power(_mean(samples, 1000), max(samples) / 1000 if samples else None)
    milliwatts = driver.ask("nvmlDeviceGetPowerUsage", device.handle)
    return None if milliwatts is None else _Power(milliwatts / 1000, None)


def _temperature(driver: Driver, device: Device) -> Any:
    sensor = driver.nvml.NVML_TEMPERATURE_GPU
    celsius = driver.ask("nvmlDeviceGetTemperatureV", device.handle, sensor)
    return driver.ask("nvmlDeviceGetTemperature", device.handle, sensor) if celsius is None else celsius


def _throttles(driver: Driver, device: Device) -> Any:
    """Return the reasons for lower clocks as bits."""
    bits = driver.ask("nvmlDeviceGetCurrentClocksEventReasons", device.handle)
    return driver.ask("nvmlDeviceGetCurrentClocksThrottleReasons", device.handle) if bits is None else bits


def _throttle(reason: str, mask: int) -> Row[int]:
    attributes = (("memwatch.gpu.throttle.reason", reason),)
    return catalog.MEMWATCH_GPU_THROTTLED, attributes, lambda bits: int(bool(bits & mask))


def _memory_errors(driver: Driver, device: Device) -> tuple[int, int] | None:
    """Return the corrected and the uncorrected errors."""
    nvml = driver.nvml
    corrected, uncorrected = (
        driver.ask("nvmlDeviceGetTotalEccErrors", device.handle, kind, nvml.NVML_VOLATILE_ECC)
        for kind in (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    )
    return None if corrected is None or uncorrected is None else (corrected, uncorrected)


def _both_ways(metric: str) -> tuple[Row[_Traffic], Row[_Traffic]]:
    received: Row[_Traffic] = (metric, RECEIVE, lambda traffic: traffic.received)
    return received, (metric, TRANSMIT, lambda traffic: traffic.sent)


def _nvlink(driver: Driver, device: Device) -> _Traffic | None:
    nvml = driver.nvml
    fields = nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
    return _traffic(driver, device, [(field, _ALL_LINKS) for field in fields], KIB)


CALLS = (
    Call(
        "memory",
        memory,
        (
            (catalog.HW_GPU_MEMORY_LIMIT, (), lambda info: info.total),
            (catalog.HW_GPU_MEMORY_USAGE, (), lambda info: info.used),
            (catalog.MEMWATCH_GPU_MEMORY_FREE, (), lambda info: info.free),
            (catalog.MEMWATCH_GPU_MEMORY_RESERVED, (), lambda info: getattr(info, "reserved", None)),
        ),
        pace=OFTEN,
        instances=True,
    ),
    Call(
        "utilization",
        _utilization,
        (
            (catalog.HW_GPU_UTILIZATION, (), lambda shares: shares.cores),
            (catalog.MEMWATCH_GPU_MEMORY_UTILIZATION, (), lambda shares: shares.memory),
        ),
    ),
    Call(
        "power",
        _power,
        (
            (catalog.HW_POWER, GPU, lambda watts: watts.mean),
            (catalog.MEMWATCH_GPU_POWER_PEAK, (), lambda watts: watts.largest),
        ),
    ),
    Call(
        "energy",
        lambda driver, device: driver.ask("nvmlDeviceGetTotalEnergyConsumption", device.handle),
        ((catalog.HW_ENERGY, GPU, lambda millijoules: millijoules / 1000),),
    ),
    Call("temperature", _temperature, ((catalog.HW_TEMPERATURE, (), lambda celsius: celsius),)),
    Call(
        "throttles",
        _throttles,
        (
            _throttle("power", 0x4 | 0x80),  # SwPowerCap, HwPowerBrakeSlowdown
            _throttle("thermal", 0x20 | 0x40),  # SwThermalSlowdown, HwThermalSlowdown
            _throttle("hardware", 0x8),  # HwSlowdown
            _throttle("sync", 0x10),  # SyncBoost
            # Bits of nvmlClocksEventReasons. Idling and user settings do not count.
        ),
        pace=SLOW,
    ),
    Call(
        "memory errors",
        _memory_errors,
        (
            (catalog.HW_ERRORS, (("error.type", "ecc_corrected"), *GPU), lambda errors: errors[0]),
            (catalog.HW_ERRORS, (("error.type", "ecc_uncorrected"), *GPU), lambda errors: errors[1]),
        ),
        pace=SLOW,
    ),
    Call(  # bytes since the driver was loaded; older cards only have a 20 ms window, which is not read
        "pcie",
        lambda driver, device: _traffic(driver, device, (_PCIE_RECEIVED, _PCIE_SENT), 1),
        _both_ways(catalog.HW_GPU_IO),
        pace=SLOW,
    ),
    Call("nvlink", _nvlink, _both_ways(catalog.MEMWATCH_GPU_NVLINK_IO), pace=SLOW),
)
"""Every call, in the order in which it is made."""


def _samples(driver: Driver, device: Device, kind: int) -> list[float] | None:
    """Return the samples of a driver's buffer since the last call; `None`: the driver keeps none.

    The first call only notes the position: the buffer's content then is older than the run.
    """
    nvml = driver.nvml
    first = kind not in device.last_sample
    try:
        answer = driver.ask("nvmlDeviceGetSamples", device.handle, kind, device.last_sample.get(kind, 0))
    except nvml.NVMLError as error:
        if driver.error_name(error) not in {"NVML_ERROR_NOT_FOUND", "NVML_ERROR_NO_DATA"}:
            raise
        answer = 0, ()  # no sample since the last call
    if answer is None:
        return None
    value_type, samples = answer
    newest = device.last_sample.get(kind, 0)
    fresh = [sample for sample in samples if sample.timeStamp > newest]
    device.last_sample[kind] = max((sample.timeStamp for sample in fresh), default=newest)
    return [] if first else [float(_value(sample.sampleValue, value_type)) for sample in fresh]


class _Traffic(NamedTuple):
    """Bytes on a link so far."""

    received: int | None
    sent: int | None


def _traffic(driver: Driver, device: Device, fields: Sequence[Any], unit: int) -> _Traffic | None:
    """Read two numbered fields of the driver, in units of `unit` bytes; `None` if it has neither."""
    answer = driver.ask("nvmlDeviceGetFieldValues", device.handle, fields)
    if answer is None:
        return None
    received, sent = (
        _value(field.value, field.valueType) * unit if field.nvmlReturn == 0 else None for field in answer
    )
    return None if received is None and sent is None else _Traffic(received, sent)


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by nvmlValueType_t."""


def _value(union: Any, value_type: int) -> Any:
    return getattr(union, _MEMBERS[value_type])


def _mean(samples: Sequence[float], scale: float) -> float | None:
    return sum(samples) / len(samples) / scale if samples else None
