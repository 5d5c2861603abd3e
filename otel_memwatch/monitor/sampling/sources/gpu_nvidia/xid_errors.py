"""Critical errors (XID) that the driver reports as they happen; a separate thread waits for them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import ABSENT, Device, Driver
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = 100
"""Number of events with code and time; later ones are only counted."""

_WAIT_MILLISECONDS = 250


class XidErrors:
    """Count of the XID errors of some devices since its creation."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """XID errors by UUID, without devices that do not report them."""
        self.kept: list[dict[str, Any]] = []
        """The first `KEPT` errors: {"time", "uuid", "code"}; time in monotonic seconds."""
        self._stop = threading.Event()
        self._thread: Thread | None = None

    def watch(self, driver: Driver, devices: Sequence[Device]) -> None:
        """Start to wait for events of the devices that report any; called again after the library was reopened."""
        if not self.close():
            return
        self._stop = threading.Event()
        nvml = driver.nvml
        try:
            event_set = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return
        for device in devices:
            try:
                nvml.nvmlDeviceRegisterEvents(device.handle, nvml.nvmlEventTypeXidCriticalError, event_set)
            except nvml.NVMLError:
                continue
            self.counts.setdefault(device.identity.uuid, 0)
        if self.counts:
            arguments = (driver, event_set, self._stop)
            self._thread = Thread(self._run, "otel-memwatch-xid", arguments)
            self._thread.start()

    def close(self) -> bool:
        """End the wait for events, without a wait for a hanging driver.

        Return whether the thread has ended. Otherwise it still uses the library, which must then stay open.
        """
        self._stop.set()
        if self._thread is None:
            return True
        self._thread.join(2 * _WAIT_MILLISECONDS / 1000)
        return not self._thread.is_alive()

    def _run(self, driver: Driver, event_set: Any, stop: threading.Event) -> None:
        nvml = driver.nvml
        while not stop.is_set():
            try:
                event = nvml.nvmlEventSetWait(event_set, _WAIT_MILLISECONDS)
                uuid, code = str(nvml.nvmlDeviceGetUUID(event.device)), int(event.eventData)
                self.counts[uuid] = self.counts.get(uuid, 0) + 1
                if len(self.kept) < KEPT:
                    self.kept.append({"time": time.monotonic(), "uuid": uuid, "code": code})
            except Exception as error:  # noqa: BLE001 - also those of the library's own code
                name = driver.error_name(error)
                if name in ABSENT or name == "NVML_ERROR_UNINITIALIZED":
                    break
                if name != "NVML_ERROR_TIMEOUT":
                    stop.wait(_WAIT_MILLISECONDS / 1000)
        with suppress(nvml.NVMLError):  # closed with the library
            nvml.nvmlEventSetFree(event_set)
