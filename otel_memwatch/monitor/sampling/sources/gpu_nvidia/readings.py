"""What is asked of each device: one table of calls, each with the columns that it fills.

Costs on a 4090 laptop, from MangoHud's maintainers: memory 12 us, utilization 2.5 us, process list 4 500 us; a call
that takes long holds a lock that the program under watch needs too. Hence few calls a second, the driver's own
sample buffers and counters instead of frequent polling, and seldom whatever is slow.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_memwatch.model import Attributes, Value
    from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import Device, Driver

GPU: Attributes = (("hw.type", "gpu"),)
RECEIVE: Attributes = (("network.io.direction", "receive"),)
TRANSMIT: Attributes = (("network.io.direction", "transmit"),)

KIB = 1024
_PCIE_SENT, _PCIE_RECEIVED = 197, 198
"""NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES of nvml.h: nvidia-ml-py has no names for them before 12.555."""
_ALL_LINKS = 0xFFFFFFFF
"""Scope of a field that stands for the sum over all NVLinks."""


class Call(NamedTuple):
    """One question to the driver."""

    name: str
    """For the account of costs."""
    columns: tuple[tuple[str, Attributes], ...]
    ask: Callable[[Driver, Device], Sequence[Value] | None]
    """One value for each column; `None`: the device will never answer. Raises the library's errors."""
    slow: bool = False
    """Asked every five seconds only."""
    instances: bool = False
    """Whether a MIG instance has an answer of its own."""


def memory(driver: Driver, device: Device) -> Sequence[Value] | None:
    """Total, used, free and reserved bytes. The first version of the call counts what is reserved as used."""
    nvml = driver.nvml
    info = driver.ask("nvmlDeviceGetMemoryInfo", device.handle, nvml.nvmlMemory_v2)
    if info is not None:
        return info.total, info.used, info.free, info.reserved
    info = driver.ask("nvmlDeviceGetMemoryInfo", device.handle)
    return None if info is None else (info.total, info.used, info.free, None)


def _utilization(driver: Driver, device: Device) -> Sequence[Value] | None:
    """Busy share of the cores and of the memory controller, averaged since the last time where the driver keeps samples."""
    nvml = driver.nvml
    cores = _samples(driver, device, nvml.NVML_GPU_UTILIZATION_SAMPLES)
    memory = _samples(driver, device, nvml.NVML_MEMORY_UTILIZATION_SAMPLES)
    if cores is not None and memory is not None:
        return _mean(cores, 100), _mean(memory, 100)
    rates = driver.ask("nvmlDeviceGetUtilizationRates", device.handle)
    return None if rates is None else (rates.gpu / 100, rates.memory / 100)


def _power(driver: Driver, device: Device) -> Sequence[Value] | None:
    """Mean and largest power in watts since the last time, from the driver's samples; else the power now."""
    samples = _samples(driver, device, driver.nvml.NVML_TOTAL_POWER_SAMPLES)
    if samples is not None:
        return _mean(samples, 1000), max(samples) / 1000 if samples else None
    milliwatts = driver.ask("nvmlDeviceGetPowerUsage", device.handle)
    return None if milliwatts is None else (milliwatts / 1000, None)


def _energy(driver: Driver, device: Device) -> Sequence[Value] | None:
    millijoules = driver.ask("nvmlDeviceGetTotalEnergyConsumption", device.handle)
    return None if millijoules is None else (millijoules / 1000,)


def _temperature(driver: Driver, device: Device) -> Sequence[Value] | None:
    sensor = driver.nvml.NVML_TEMPERATURE_GPU
    celsius = driver.ask("nvmlDeviceGetTemperatureV", device.handle, sensor)
    if celsius is None:
        celsius = driver.ask("nvmlDeviceGetTemperature", device.handle, sensor)
    return None if celsius is None else (celsius,)


_THROTTLES = (
    ("power", 0x4 | 0x80),  # SwPowerCap, HwPowerBrakeSlowdown
    ("thermal", 0x20 | 0x40),  # SwThermalSlowdown, HwThermalSlowdown
    ("hardware", 0x8),  # HwSlowdown
    ("sync", 0x10),  # SyncBoost
)
"""Reasons for lower clocks, with their bits in nvmlClocksEventReasons; idling and user settings are none."""


def _throttles(driver: Driver, device: Device) -> Sequence[Value] | None:
    bits = driver.ask("nvmlDeviceGetCurrentClocksEventReasons", device.handle)
    if bits is None:
        bits = driver.ask("nvmlDeviceGetCurrentClocksThrottleReasons", device.handle)
    return None if bits is None else [int(bool(bits & mask)) for _, mask in _THROTTLES]


def _memory_errors(driver: Driver, device: Device) -> Sequence[Value] | None:
    nvml = driver.nvml
    counts = [
        driver.ask("nvmlDeviceGetTotalEccErrors", device.handle, kind, nvml.NVML_VOLATILE_ECC)
        for kind in (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    ]
    return None if None in counts else counts


def _pcie(driver: Driver, device: Device) -> Sequence[Value] | None:
    """Bytes received and sent since the driver was loaded; older cards only have a 20 ms window, which is not asked."""
    return _fields(driver, device, (_PCIE_RECEIVED, _PCIE_SENT))


def _nvlink(driver: Driver, device: Device) -> Sequence[Value] | None:
    nvml = driver.nvml
    fields = nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
    kibibytes = _fields(driver, device, [(field, _ALL_LINKS) for field in fields])
    return kibibytes and [None if value is None else value * KIB for value in kibibytes]


CALLS = (
    Call(
        "memory",
        (
            (catalog.HW_GPU_MEMORY_LIMIT, ()),
            (catalog.HW_GPU_MEMORY_USAGE, ()),
            (catalog.MEMWATCH_GPU_MEMORY_FREE, ()),
            (catalog.MEMWATCH_GPU_MEMORY_RESERVED, ()),
        ),
        memory,
        instances=True,
    ),
    Call(
        "utilization",
        ((catalog.HW_GPU_UTILIZATION, ()), (catalog.MEMWATCH_GPU_MEMORY_UTILIZATION, ())),
        _utilization,
    ),
    Call("power", ((catalog.HW_POWER, GPU), (catalog.MEMWATCH_GPU_POWER_PEAK, ())), _power),
    Call("energy", ((catalog.HW_ENERGY, GPU),), _energy),
    Call("temperature", ((catalog.HW_TEMPERATURE, ()),), _temperature),
    Call(
        "throttles",
        tuple(
            (catalog.MEMWATCH_GPU_THROTTLED, (("memwatch.gpu.throttle.reason", name),))
            for name, _ in _THROTTLES
        ),
        _throttles,
        slow=True,
    ),
    Call(
        "memory errors",
        tuple(
            (catalog.HW_ERRORS, (("error.type", f"ecc_{kind}"), *GPU))
            for kind in ("corrected", "uncorrected")
        ),
        _memory_errors,
        slow=True,
    ),
    Call("pcie", ((catalog.HW_GPU_IO, RECEIVE), (catalog.HW_GPU_IO, TRANSMIT)), _pcie, slow=True),
    Call(
        "nvlink",
        ((catalog.MEMWATCH_GPU_NVLINK_IO, RECEIVE), (catalog.MEMWATCH_GPU_NVLINK_IO, TRANSMIT)),
        _nvlink,
        slow=True,
    ),
)
"""Every call, in the order in which it is made."""


def _samples(driver: Driver, device: Device, kind: int) -> list[float] | None:
    """Samples of a driver's buffer that are newer than those taken before; `None`: it keeps none.

    The first time only the position is noted: what the buffer holds then was before the run.
    """
    nvml = driver.nvml
    first = kind not in device.last_sample
    try:
        answer = driver.ask("nvmlDeviceGetSamples", device.handle, kind, device.last_sample.get(kind, 0))
    except nvml.NVMLError as error:
        if driver.error_name(error) not in {"NVML_ERROR_NOT_FOUND", "NVML_ERROR_NO_DATA"}:
            raise
        answer = 0, ()  # no sample since the last time
    if answer is None:
        return None
    value_type, samples = answer
    newest = device.last_sample.get(kind, 0)
    fresh = [sample for sample in samples if sample.timeStamp > newest]
    device.last_sample[kind] = max((sample.timeStamp for sample in fresh), default=newest)
    return [] if first else [float(_value(sample.sampleValue, value_type)) for sample in fresh]


def _fields(driver: Driver, device: Device, fields: Sequence[Any]) -> list[Any] | None:
    """Values of the driver's numbered fields; `None` where it has none of them."""
    answer = driver.ask("nvmlDeviceGetFieldValues", device.handle, fields)
    if answer is None:
        return None
    values = [_value(field.value, field.valueType) if field.nvmlReturn == 0 else None for field in answer]
    return values if any(value is not None for value in values) else None


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by nvmlValueType_t."""


def _value(union: Any, value_type: int) -> Any:
    return getattr(union, _MEMBERS[value_type])


def _mean(samples: Sequence[float], scale: float) -> float | None:
    return sum(samples) / len(samples) / scale if samples else None
