"""The NVIDIA driver's management library: opening, devices, and error messages.

`nvidia-ml-py` (module `pynvml`) is imported only if the driver's library is installed: the import costs 25 ms.
"""

from __future__ import annotations

from contextlib import suppress

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.visible import Identity
from otel_memwatch.runtime.gpu_presence import require_library
from otel_memwatch.runtime.typed import Any

HANGS_HINT = "check dmesg for an XID error, and reset the GPU or reboot; nvidia-smi hangs too until then"

_HINTS = {
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver was updated while its old kernel module is still loaded: reboot, or reload the nvidia modules",
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the kernel module with modprobe nvidia, or give the container the GPU's device files",
    "NVML_ERROR_NO_PERMISSION": "the device files /dev/nvidia* must be readable and writable by this user",
    "NVML_ERROR_GPU_IS_LOST": "the GPU fell off the bus or hangs: dmesg names the XID error; it needs a reset",
    "NVML_ERROR_RESET_REQUIRED": "reset it with nvidia-smi --gpu-reset",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "the driver is older than the call",
}

ABSENT = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
)
"""Errors of a device that will never answer this question."""

GONE = (
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_GPU_NOT_FOUND",
    "NVML_ERROR_NOT_FOUND",
)
"""Errors of a device that answers no question until it is reset."""

CLOSED = ("NVML_ERROR_UNINITIALIZED", "NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")
"""Errors after which the library must be opened again."""


class Outage:
    """Time in which a device did not answer one question."""

    def __init__(self, error: str) -> None:
        self.error = error
        """First error."""
        self._seconds = 0.0
        self._since: float | None = None

    def begin(self, now: float) -> None:
        """Note that the question has no answer at `now`, in monotonic seconds."""
        if self._since is None:
            self._since = now

    def end(self, now: float) -> None:
        """Note an answer."""
        self._seconds, self._since = self.seconds(now), None

    def seconds(self, now: float) -> float:
        """Return the seconds without an answer so far."""
        return self._seconds + (0.0 if self._since is None else now - self._since)


class Device:
    """One GPU or MIG instance with its handle in the driver."""

    def __init__(self, identity: Identity, handle: Any) -> None:
        self.identity = identity
        self.handle = handle
        self.trouble: str | None = None
        """Error because of which it answers no question at present."""
        self.outages: dict[str, Outage] = {}
        """By question, of those that it once did not answer."""
        self.most_used = 0
        """Largest used memory so far, in bytes, to `GROWTH`."""
        self.grown = False
        """True if memory has grown since its processes were listed."""
        self.last_sample: dict[int, int] = {}
        """Time stamp of the newest sample read from each of the driver's buffers."""


class Driver:
    """The opened library. The process has only one; opening it twice does no harm."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        # The second one is raised by some functions instead of NVML_ERROR_FUNCTION_NOT_FOUND.
        self._lacks = AttributeError, getattr(nvml, "NVMLLibraryMismatchError", AttributeError)
        """Errors if the library or an old driver lacks a function."""
        self._error_names = {
            getattr(nvml, name): name for name in dir(nvml) if name.startswith("NVML_ERROR_")
        }

    def error_name(self, error: Exception) -> str:
        """Return the name of an error's code, "NVML_ERROR_NOT_SUPPORTED"; empty for an error of another origin."""
        return self._error_names.get(getattr(error, "value", None), "")

    def words(self, error: Exception) -> str:
        """Return an error as text, with a remedy if one is known."""
        hint = _HINTS.get(self.error_name(error))
        return f"{error} ({hint})" if hint else str(error)

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of the library; return `None` if this device or driver lacks it."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except (self.nvml.NVMLError, *self._lacks) as error:
            if isinstance(error, self._lacks) or self.error_name(error) in ABSENT:
                return None
            raise

    def version(self) -> str | None:
        """Return the version of the driver."""
        return _text(self.ask("nvmlSystemGetDriverVersion"))

    def devices(self) -> list[Device]:
        """Return all GPUs visible to this process, each followed by its MIG instances. Devices without a name are omitted."""
        nvml, found = self.nvml, []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                pci = _text(nvml.nvmlDeviceGetPciInfo(handle).busId) or ""
                name = _text(self.ask("nvmlDeviceGetName", handle)) or "NVIDIA GPU"
                uuid = str(_text(nvml.nvmlDeviceGetUUID(handle)))
            except Exception:  # noqa: BLE001, S112 - also those of the library's own code
                continue
            card = Device(Identity(uuid, pci.lower(), name), handle)
            found.append(card)
            found.extend(self._instances(card))
        return found

    def _instances(self, card: Device) -> list[Device]:
        mode = self.ask("nvmlDeviceGetMigMode", card.handle)
        if not mode or not mode[0]:
            return []
        return [
            instance
            for index in range(self.ask("nvmlDeviceGetMaxMigDeviceCount", card.handle) or 0)
            if (instance := self._instance(card, index)) is not None
        ]

    def _instance(self, card: Device, index: int) -> Device | None:
        nvml = self.nvml
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, index)
            uuid = str(_text(nvml.nvmlDeviceGetUUID(handle)))
        except nvml.NVMLError:
            return None
        instance = (
            self.ask("nvmlDeviceGetGpuInstanceId", handle),
            self.ask("nvmlDeviceGetComputeInstanceId", handle),
        )
        name = _text(self.ask("nvmlDeviceGetName", handle)) or card.identity.name
        known = instance if None not in instance else None
        return Device(Identity(uuid, card.identity.pci, name, card.identity.uuid, known), handle)

    def reopen(self, devices: list[Device]) -> None:
        """Reopen the library and renew the handles after a reset. A missing device gets its error as `trouble`."""
        nvml = self.nvml
        with suppress(nvml.NVMLError):  # it may already be closed
            nvml.nvmlShutdown()
        nvml.nvmlInit()
        for device in devices:
            try:
                device.handle = nvml.nvmlDeviceGetHandleByUUID(device.identity.uuid)
                device.trouble = None
            except nvml.NVMLError as error:
                device.trouble = self.words(error)

    def close(self) -> None:
        """Close the library."""
        with suppress(self.nvml.NVMLError):  # the driver may be gone
            self.nvml.nvmlShutdown()


def open_driver() -> Driver:
    """Open the driver's library. A faulty driver may block for seconds, or for ever.

    Raises `Unavailable` if there is no driver, `nvidia-ml-py` is missing, or the driver cannot be used.
    """
    require_library()
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        raise Unavailable("The package nvidia-ml-py is missing", "pip install nvidia-ml-py") from None
    driver = Driver(pynvml)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        hint = _HINTS.get(driver.error_name(error), "see nvidia-smi")
        raise Unavailable(f"The NVIDIA driver cannot be used: {error}", hint) from None
    return driver


def _text(value: Any) -> str | None:
    """Return a string of the library as text; older versions return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
