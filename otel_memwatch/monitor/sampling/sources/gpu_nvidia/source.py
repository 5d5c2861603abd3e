"""The source: every visible NVIDIA device once a second, its slow figures and processes every five."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Attributes, Column, Value
from otel_memwatch.monitor.sampling.sources.gpu_nvidia import processes
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import (
    CLOSED,
    GONE,
    HANGS_HINT,
    Device,
    Driver,
    open_driver,
)
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.events import Events
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.readings import CALLS, GPU, Call
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.visible import VISIBLE_VARIABLE, Visible, visible
from otel_memwatch.runtime.polling import Pace, Poller, answered
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from otel_memwatch.monitor.sampling.sources import Context

PERIOD = 1.0
SLOW_PERIOD = 5.0
"""Seconds between process lists and other slow readings: one list takes milliseconds under the driver's lock."""

SHARE = 0.01
"""Part of the wall time that may pass in the driver's calls: above it, they are made less often."""

OPENING = 3.0
"""Seconds that the driver may take to open. Without its persistence daemon it wakes every card first."""

REOPEN = 30.0
"""Seconds between two attempts to get a lost device back."""

REMEMBERED = 4096
"""Processes of the tree whose accounted peaks are looked for."""

_DRIVER = "The NVIDIA driver"
_USAGE = catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE
_LARGEST = catalog.MEMWATCH_PROCESS_GPU_MEMORY_USAGE
_PEAK = catalog.MEMWATCH_PROCESS_GPU_MEMORY_PEAK


class _OpenedDriver(NamedTuple):
    """What was found when the driver was opened."""

    driver: Driver
    version: str | None
    devices: list[Device]
    chosen: Visible
    calls: list[tuple[Device, list[Call]]]
    accounting: dict[str, bool | None]
    lists: set[str]
    """Devices whose driver lists their processes."""


class GpuNvidia:
    """NVIDIA GPUs that the target may see.

    Columns are those that the devices answer when the source is made; a question that a device does not know has
    none. The driver is only ever called from threads of its own: `read` takes what they have published.

    Args:
        context: the context of the run.
        opening: seconds that the driver may take to open.
        period: seconds between readings; the slow ones follow it by a factor of five.

    Raises:
        Unavailable: no driver, no device that the target may see, or no answer in time.

    """

    name = "gpu_nvidia"

    def __init__(self, context: Context, opening: float = OPENING, period: float = PERIOD) -> None:
        self._context = context
        self._since = time.time()
        self._opened = opened = answered(self._open, opening, _DRIVER, _OPENING_HINT)
        self._events = Events()
        slow_period = period * SLOW_PERIOD / PERIOD
        self._fast = Pace(period, early=period / 10, share=SHARE)
        self._slow = Pace(slow_period, early=slow_period / 10, share=SHARE)
        self._reopening = Pace(REOPEN, early=REOPEN / 10)
        self._lock = threading.Lock()
        self._living: tuple[int, ...] = ()
        self._ours: dict[int, None] = {}
        self._note_tree()
        self._costs: dict[str, list[float]] = {}
        self._holders: dict[str, dict[int, int]] = {}
        self._accounted: dict[str, dict[int, int]] = {}
        self._pids_match = processes.pids_match(context.proc)
        cards = [device for device, _ in opened.calls if not device.identity.parent]
        self._events.watch(opened.driver, cards)
        self._report_errors = frozenset(self._events.counts)
        self.columns: tuple[Column, ...] = tuple(
            column for device, calls in opened.calls for column in self._columns(device, calls)
        )
        self._poller = Poller(_DRIVER, self._poll, period, HANGS_HINT)
        self._poller.start()

    # -- called by the sampler

    def read(self, now: float) -> Sequence[Value]:
        """What the driver's thread has published since the last call; no value where it has published nothing.

        Raises `Unavailable` while the driver hangs, or while none of its devices answers.
        """
        self._note_tree()
        return self._poller.new_values(now) or (None,) * len(self.columns)

    def _note_tree(self) -> None:
        """Who is of the tree now, and who was, for the driver's thread."""
        with self._lock:
            self._living = tuple(self._context.pids())
            for pid in self._living:
                self._ours.pop(pid, None)
                self._ours[pid] = None
            while len(self._ours) > REMEMBERED:
                del self._ours[next(iter(self._ours))]

    def close(self) -> None:
        """Ends the threads and gives the driver back; a driver that hangs is left alone."""
        self._poller.close()
        self._events.close()
        with suppress(Unavailable):  # it hangs: the end of the process gives it back
            answered(self._opened.driver.close, 1.0, _DRIVER, HANGS_HINT)

    def info(self) -> list[dict[str, Any]]:
        """Every device of the machine, in words and figures that JSON can hold, for the record and `doctor`."""
        seen = {device.identity for device, _ in self._opened.calls}
        return [self._describe(device, device.identity in seen) for device in self._opened.devices]

    def costs(self) -> dict[str, float]:
        """Mean seconds that each kind of question took so far, over all devices."""
        return {name: sum(spent) / len(spent) for name, spent in list(self._costs.items())}

    # -- opening

    def _open(self) -> _OpenedDriver:
        driver = open_driver()
        devices = driver.devices()
        chosen = visible(self._context.environment, [device.identity for device in devices])
        if not chosen.devices:
            driver.close()
            hint = (
                f"{VISIBLE_VARIABLE} hides all {len(devices)} from the target"
                if devices
                else "nvidia-smi -L lists none"
            )
            raise Unavailable("The target may use no NVIDIA GPU", hint)
        picked = set(chosen.devices)
        parents = {identity.parent for identity in picked}
        calls = []
        for device in devices:
            if device.identity in picked or device.identity.uuid in parents:
                known = [
                    call for call in CALLS if self._asks(device, call, picked) and _has(driver, device, call)
                ]
                calls.append((device, known))
        cards = [device for device, _ in calls if not device.identity.parent]
        accounting = {device.identity.uuid: processes.accounting_is_on(driver, device) for device in cards}
        lists = {
            device.identity.uuid
            for device, _ in calls
            if device.identity in picked and _lists_processes(driver, device)
        }
        return _OpenedDriver(driver, driver.version(), devices, chosen, calls, accounting, lists)

    @staticmethod
    def _asks(device: Device, call: Call, picked: Collection[Any]) -> bool:
        """A card that is visible only through its instances is asked for what it has in common for them."""
        if device.identity.parent:
            return call.instances
        return device.identity in picked or not call.instances

    def _columns(self, device: Device, calls: Sequence[Call]) -> list[Column]:
        uuid = device.identity.uuid
        columns = [
            Column(metric, self._attributes(device, extra), SLOW_PERIOD if call.slow else PERIOD)
            for call in calls
            for metric, extra in call.columns
        ]
        if uuid in self._report_errors:
            columns.append(
                Column(
                    catalog.HW_ERRORS, self._attributes(device, (("error.type", "xid"), *GPU)), SLOW_PERIOD
                )
            )
        if self._pids_match and uuid in self._opened.lists:
            columns += [
                Column(metric, self._attributes(device), SLOW_PERIOD) for metric in (_USAGE, _LARGEST)
            ]
        if self._pids_match and self._opened.accounting.get(uuid):
            columns.append(Column(_PEAK, self._attributes(device), SLOW_PERIOD))
        return columns

    @staticmethod
    def _attributes(device: Device, extra: Attributes = ()) -> Attributes:
        identity = device.identity
        parent = (("hw.parent", identity.parent),) if identity.parent else ()
        return tuple(sorted((("hw.id", identity.uuid), ("hw.name", identity.name), *parent, *extra)))

    # -- the driver's thread

    def _poll(self) -> Sequence[Value]:
        now = time.monotonic()
        if not self._fast.due(now):
            return (None,) * len(self.columns)
        self._revive(now)
        slow = self._slow.due(now)
        began = time.monotonic()
        values: list[Value] = []
        for device, calls in self._opened.calls:
            for call in calls:
                if not call.slow:
                    values.extend(self._ask(device, call))
                    continue
                values.extend(self._ask(device, call) if slow else (None,) * len(call.columns))
            values.extend(self._tail(device, slow))
        spent = time.monotonic() - began
        (self._slow if slow else self._fast).spent(now, spent)
        troubles = {device.trouble for device, _ in self._opened.calls}
        if None not in troubles:
            raise Unavailable("No GPU answers: " + "; ".join(sorted(str(trouble) for trouble in troubles)))
        return values

    def _tail(self, device: Device, slow: bool) -> list[Value]:
        """Values of the columns that are made here: XID errors, and what processes hold."""
        uuid = device.identity.uuid
        values: list[Value] = []
        if uuid in self._report_errors:
            values.append(self._events.counts[uuid])
        if not self._pids_match:
            return values
        with self._lock:
            living, ours = self._living, list(self._ours)
        if uuid in self._opened.lists:
            values += self._held(device, living) if slow else (None, None)
        if self._opened.accounting.get(uuid):
            values.append(self._accounted_peak(device, ours) if slow else None)
        return values

    def _ask(self, device: Device, call: Call) -> Sequence[Value]:
        nothing = (None,) * len(call.columns)
        answer = self._guarded(device, call.name, lambda: call.ask(self._opened.driver, device))
        return nothing if answer is None else answer

    def _held(self, device: Device, living: Collection[int]) -> tuple[Value, Value]:
        holders = self._guarded(device, "processes", lambda: processes.held(self._opened.driver, device))
        most = self._holders.setdefault(device.identity.uuid, {})
        for pid, used in (holders or {}).items():
            if pid in living and used is not None:
                most[pid] = max(used, most.get(pid, 0))
        part = processes.share(holders, living)
        return part.total, part.largest

    def _accounted_peak(self, device: Device, tree: Collection[int]) -> Value:
        peaks = self._guarded(
            device,
            "accounting",
            lambda: processes.accounted_peaks(self._opened.driver, device, tree, self._since),
        )
        if not peaks:
            return None
        self._accounted.setdefault(device.identity.uuid, {}).update(peaks)
        return max(self._accounted[device.identity.uuid].values())

    def _guarded(self, device: Device, name: str, ask: Any) -> Any:
        """An answer of the driver with its cost noted; `None` when there is none, or the device is lost."""
        driver = self._opened.driver
        if device.trouble is not None:
            return None
        began = time.monotonic()
        try:
            return ask()
        except driver.nvml.NVMLError as error:
            if driver.error_name(error) in GONE + CLOSED:
                device.trouble = f"{device.identity.uuid}: {driver.words(error)}"
            return None
        finally:
            spent = self._costs.setdefault(name, [])
            spent.append(time.monotonic() - began)
            del spent[:-100]

    def _revive(self, now: float) -> None:
        """Opens the driver anew, now and then, while a device is lost."""
        opened = self._opened
        lost = [device for device, _ in opened.calls if device.trouble]
        if not lost:
            self._reopening.spent(now, 0)
        elif self._reopening.due(now):
            self._events.close()
            try:
                opened.driver.reopen(opened.devices)
            except opened.driver.nvml.NVMLError as error:
                for device in opened.devices:
                    device.trouble = opened.driver.words(error)
                return
            self._events.watch(
                opened.driver, [device for device, _ in opened.calls if not device.identity.parent]
            )

    # -- in words

    def _describe(self, device: Device, recorded: bool) -> dict[str, Any]:
        identity, opened = device.identity, self._opened
        uuid = identity.uuid
        calls = next((known for candidate, known in opened.calls if candidate is device), [])
        asked = [call for call in CALLS if call.instances or not identity.parent]
        return {
            "id": uuid,
            "name": identity.name,
            "pci": identity.pci,
            "vendor": "NVIDIA",
            "driver": opened.version,
            "parent": identity.parent,
            "visible": identity in opened.chosen.devices if opened.chosen.certain else None,
            "recorded": recorded,
            "absent": [call.name for call in asked if call not in calls] if recorded else [],
            "accounting": opened.accounting.get(uuid),
            "processes": self._process_scope(uuid),
            "trouble": device.trouble,
            "held": {str(pid): used for pid, used in list(self._holders.get(uuid, {}).items())},
            "accounted": {str(pid): peak for pid, peak in list(self._accounted.get(uuid, {}).items())},
            "xid": [event for event in list(self._events.kept) if event["uuid"] == uuid],
        }

    def _process_scope(self, uuid: str) -> str:
        """Whether memory is known by process, or why not."""
        if not self._pids_match:
            return processes.FOREIGN_PIDS
        return "by process" if uuid in self._opened.lists else processes.NO_LISTS


_OPENING_HINT = (
    "it wakes every card when nobody uses them: nvidia-persistenced keeps them awake; " + HANGS_HINT
)


def _has(driver: Driver, device: Device, call: Call) -> bool:
    """Whether a device answers a question at all. Trouble of the moment does not count against it."""
    try:
        return call.ask(driver, device) is not None
    except driver.nvml.NVMLError:
        return True


def _lists_processes(driver: Driver, device: Device) -> bool:
    try:
        return processes.held(driver, device) is not None
    except driver.nvml.NVMLError:
        return True
