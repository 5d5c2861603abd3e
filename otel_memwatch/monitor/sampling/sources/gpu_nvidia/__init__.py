"""NVIDIA GPUs through the driver's management library (NVML): memory, use, power, energy, errors, processes.

The memory of every visible device is read five times a second, its other figures once a second, slow ones and processes
every five seconds. Memory of a device includes all programs. The tree's part is known if the driver's pids are ours, which is not so in a container with a
separate PID namespace.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable, describe
from otel_memwatch.model import Column
from otel_memwatch.monitor.sampling.sources.gpu_nvidia import processes, visible
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import (
    CLOSED,
    GONE,
    HANGS_HINT,
    Device,
    Driver,
    Outage,
    open_driver,
)
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.readings import AT_GROWTH, CALLS, GPU, SLOW, Call
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.xid_errors import XidErrors
from otel_memwatch.runtime.polling import Pace, Poller, answered
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from otel_memwatch.model import Attributes, Value
    from otel_memwatch.monitor.sampling.sources import Context

PERIOD = 1.0
OFTEN = 5
"""Readings of memory in a period: on an H200 the call takes 0.1 ms, that for utilization 5 ms and for energy 3 ms."""
SLOW_PERIOD = 5.0
"""Seconds between process lists, and between other slow readings: a list holds the driver's lock for milliseconds."""

SHARES = 0.0025, 0.005, 0.001, 0.0015
"""Shares of wall time for the driver's calls, by pace. Beyond them they become less frequent."""

GROWTH = 1.01
"""Factor by which the used memory of a device exceeds all earlier values before its processes are listed at once.

Otherwise the run's part of a peak would be missed between two slow readings.
"""

REOPEN = 30.0
"""Seconds between two attempts to get a lost device back."""

REMEMBERED = 4096
"""Number of processes of the tree, the latest ones, for which accounted peaks are read."""

_DRIVER = "The NVIDIA driver"


class _OpenedDriver(NamedTuple):
    """State of the driver when it was opened."""

    driver: Driver
    version: str | None
    devices: list[Device]
    chosen: visible.Visible
    calls: list[tuple[Device, list[Call]]]
    accounting: dict[str, bool | None]
    lists: set[str]
    """UUIDs of the devices for which the driver lists processes."""


class GpuNvidia:
    """NVIDIA GPUs that the target may see.

    A call has columns only if the device answers it when the source is opened. Only separate threads call the driver;
    `read` takes the values that they have published.

    Args:
        context: the context of the run.
        period: seconds between readings; a fifth of it between those of memory, five times as many between slow ones.

    Raises:
        Unavailable: no driver, no device that the target may see, or no answer in time.

    """

    name = "gpu_nvidia"

    def __init__(self, context: Context, period: float = PERIOD) -> None:
        self._context = context
        self._since = time.time()
        limit = context.opening_limit
        self._opened = opened = (
            self._open() if limit is None else answered(self._open, limit, _DRIVER, _OPENING_HINT)
        )
        self._xid_errors = XidErrors()
        slow_period = period * SLOW_PERIOD / PERIOD
        often = max(period / OFTEN, min(period, context.interval))
        self._paces = [
            Pace(seconds, early=seconds / 10, share=share)
            for seconds, share in zip((often, period, slow_period, often), SHARES, strict=True)
        ]
        self._reopening = Pace(REOPEN, early=REOPEN / 10)
        self._lock = threading.Lock()
        self._living: tuple[int, ...] = ()
        self._tree: dict[int, None] = {}
        self._note_tree()
        self._costs: dict[str, list[float]] = {}
        self._holders: dict[str, dict[int, int]] = {}
        self._accounted: dict[str, dict[int, int]] = {}
        self._pids_match = processes.pids_match(context.proc)
        cards = [device for device, _ in opened.calls if not device.identity.parent]
        self._xid_errors.watch(opened.driver, cards)
        self._calls = [(device, [*calls, *self._tree_calls(device)]) for device, calls in opened.calls]
        self.columns: tuple[Column, ...] = tuple(
            Column(metric, _attributes(device, extra), SLOW_PERIOD if call.pace == SLOW else PERIOD)
            for device, calls in self._calls
            for call in calls
            for metric, extra, _ in call.columns
        )
        self.poller = Poller(_DRIVER, self._poll, often, HANGS_HINT)
        """Its CPU time counts as that of the source."""
        self.poller.start()

    # -- called by the sampler

    def read(self, now: float) -> Sequence[Value]:
        """Return the values that the driver's thread has published since the last call, or only `None`.

        Raises `Unavailable` while the driver hangs, or while none of its devices answers.
        """
        self._note_tree()
        return self.poller.new_values(now) or (None,) * len(self.columns)

    def _note_tree(self) -> None:
        """Note current and former processes of the tree for the driver's thread."""
        with self._lock:
            self._living = tuple(self._context.pids())
            for pid in self._living:
                self._tree.pop(pid, None)
                self._tree[pid] = None
            while len(self._tree) > REMEMBERED:
                del self._tree[next(iter(self._tree))]

    def close(self) -> None:
        """End the threads and close the driver, unless one of them hangs."""
        idle = (self.poller.close(), self._xid_errors.close())
        if not all(idle):
            return  # a thread that still uses the library would use it after its end
        with suppress(Unavailable):  # a hanging driver is closed with the process
            answered(self._opened.driver.close, 1.0, _DRIVER, HANGS_HINT)

    def info(self) -> list[dict[str, Any]]:
        """Return a description of every device of the machine as JSON values, for the record and `doctor`."""
        seen = {device.identity for device, _ in self._opened.calls}
        return [self._describe(device, device.identity in seen) for device in self._opened.devices]

    def costs(self) -> dict[str, float]:
        """Return the mean seconds of each kind of call so far, over all devices."""
        return {name: sum(spent) / len(spent) for name, spent in list(self._costs.items())}

    # -- opening

    def _open(self) -> _OpenedDriver:
        driver = open_driver()
        devices = driver.devices()
        chosen = visible.visible(self._context.environment, [device.identity for device in devices])
        if not chosen.devices:
            driver.close()
            hint = (
                f"{visible.VISIBLE_VARIABLE} hides all {len(devices)} from the target"
                if devices
                else "nvidia-smi -L lists none"
            )
            raise Unavailable("The target can use no NVIDIA GPU", hint)
        picked = set(chosen.devices)
        parents = {identity.parent for identity in picked}
        calls = []
        for device in devices:
            if device.identity in picked or device.identity.uuid in parents:
                known = [
                    call
                    for call in CALLS
                    if self._asks(device, call, picked) and _answers(driver, device, call.ask)
                ]
                calls.append((device, known))
        cards = [device for device, _ in calls if not device.identity.parent]
        accounting = {device.identity.uuid: processes.accounting_is_on(driver, device) for device in cards}
        lists = {
            device.identity.uuid
            for device, _ in calls
            if device.identity in picked and _answers(driver, device, processes.held)
        }
        return _OpenedDriver(driver, driver.version(), devices, chosen, calls, accounting, lists)

    @staticmethod
    def _asks(device: Device, call: Call, picked: Collection[Any]) -> bool:
        """Return whether to make this call. A card visible only through its instances answers for their common figures."""
        if device.identity.parent:
            return call.instances
        return device.identity in picked or not call.instances

    def _tree_calls(self, device: Device) -> list[Call]:
        """Return the calls that need more than the driver: XID errors, and the tree's part of the device."""
        uuid = device.identity.uuid
        xid = (("error.type", "xid"), *GPU)
        found = []
        if uuid in self._xid_errors.counts:
            rows = ((catalog.HW_ERRORS, xid, lambda count: count),)
            found.append(Call("xid", lambda *_: self._xid_errors.counts[uuid], rows, pace=SLOW, offline=True))
        if self._pids_match and uuid in self._opened.lists:
            found.append(
                Call(
                    "processes",
                    self._share,
                    (
                        (catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE, (), lambda share: share.total),
                        (catalog.MEMWATCH_PROCESS_GPU_MEMORY_USAGE, (), lambda share: share.largest),
                    ),
                    pace=SLOW,
                    at_growth=True,
                )
            )
        if self._pids_match and self._opened.accounting.get(uuid):
            rows = ((catalog.MEMWATCH_PROCESS_GPU_MEMORY_PEAK, (), lambda peak: peak),)
            found.append(Call("accounting", self._accounted_peak, rows, pace=SLOW))
        return found

    # -- the driver's thread

    def _poll(self) -> Sequence[Value]:
        now = time.monotonic()
        dues = [pace.due(now) for pace in self._paces]
        if not any(dues):
            return (None,) * len(self.columns)
        self._revive(now)
        spent = [0.0] * len(dues)
        values: list[Value] = []
        for device, calls in self._calls:
            for call in calls:
                read, pace = None, _pace_now(device, call, dues)
                if pace is not None:
                    began = time.monotonic()
                    read = self._ask(device, call)
                    spent[pace] += 0.0 if call.offline else time.monotonic() - began
                values += read or (None,) * len(call.columns)
                if read is not None:
                    _note_growth(device, call, read)
        for paced, seconds in zip(self._paces, spent, strict=True):
            if seconds:
                paced.spent(now, seconds)
        troubles = {device.trouble for device, _ in self._opened.calls}
        if None not in troubles:
            raise Unavailable("No GPU answers: " + "; ".join(sorted(str(trouble) for trouble in troubles)))
        return values

    def _ask(self, device: Device, call: Call) -> list[Value] | None:
        """Return the values of a call's columns and note its cost; `None` without an answer, or if the device is lost.

        An error is confined to this question. It may also come from the library's code:

        * `TypeError` of nvidia-ml-py for some values that are not available
        * `IndexError` for an unknown type of value
        """
        driver = self._opened.driver
        began = time.monotonic()
        if device.trouble is not None and not call.offline:
            device.outages.setdefault(call.name, Outage(device.trouble)).begin(began)
            return None
        try:
            answer = call.ask(driver, device)
            values = None if answer is None else [get(answer) for _, _, get in call.columns]
        except Exception as error:  # noqa: BLE001 - no question stops the others
            if driver.error_name(error) in GONE + CLOSED:
                device.trouble = f"{device.identity.uuid}: {driver.words(error)}"
            words = driver.words(error) if isinstance(error, driver.nvml.NVMLError) else describe(error)
            device.outages.setdefault(call.name, Outage(words)).begin(began)
            return None
        finally:
            if not call.offline:
                spent = self._costs.setdefault(call.name, [])
                spent.append(time.monotonic() - began)
                del spent[:-100]
        if call.name in device.outages:
            device.outages[call.name].end(began)
        return values

    def _share(self, driver: Driver, device: Device) -> processes.Share | None:
        """Return the tree's part of a device, and note the largest size of each process."""
        holders = processes.held(driver, device)
        if holders is None:
            return None
        with self._lock:
            living = self._living
        largest = self._holders.setdefault(device.identity.uuid, {})
        for pid, used in holders.items():
            if pid in living and used is not None:
                largest[pid] = max(used, largest.get(pid, 0))
        return processes.share(holders, living)

    def _accounted_peak(self, driver: Driver, device: Device) -> int | None:
        """Return the largest peak among all processes of the tree so far."""
        with self._lock:
            tree = list(self._tree)
        peaks = processes.accounted_peaks(driver, device, tree, self._since)
        if not peaks:
            return None
        known = self._accounted.setdefault(device.identity.uuid, {})
        known.update(peaks)
        return max(known.values())

    def _revive(self, now: float) -> None:
        """Reopen the driver every `REOPEN` seconds while a device is lost."""
        opened = self._opened
        lost = [device for device, _ in opened.calls if device.trouble]
        if not lost:
            self._reopening.spent(now, 0)
        elif self._reopening.due(now):
            if not self._xid_errors.close():
                return  # its thread still uses the library
            try:
                opened.driver.reopen(opened.devices)
            except opened.driver.nvml.NVMLError as error:
                for device in opened.devices:
                    device.trouble = opened.driver.words(error)
                return
            self._xid_errors.watch(
                opened.driver, [device for device, _ in opened.calls if not device.identity.parent]
            )

    # -- description

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
            "unknown": {
                question: {"seconds": round(outage.seconds(time.monotonic()), 3), "error": outage.error}
                for question, outage in list(device.outages.items())
            },
            "held": {str(pid): used for pid, used in list(self._holders.get(uuid, {}).items())},
            "accounted": {str(pid): peak for pid, peak in list(self._accounted.get(uuid, {}).items())},
            "xid": [event for event in list(self._xid_errors.kept) if event["uuid"] == uuid],
        }

    def _process_scope(self, uuid: str) -> str:
        """Return "by process", or the reason why memory is only known for the whole device."""
        if not self._pids_match:
            return processes.FOREIGN_PIDS
        return "by process" if uuid in self._opened.lists else processes.NO_LISTS


def _attributes(device: Device, extra: Attributes) -> Attributes:
    identity = device.identity
    parent = (("hw.parent", identity.parent),) if identity.parent else ()
    return tuple(sorted((("hw.id", identity.uuid), ("hw.name", identity.name), *parent, *extra)))


_OPENING_HINT = "opening wakes all idle cards unless nvidia-persistenced keeps them awake; " + HANGS_HINT


def _answers(driver: Driver, device: Device, ask: Callable[[Driver, Device], Any]) -> bool:
    """Return whether a device supports a question. A temporary error counts as support."""
    try:
        return ask(driver, device) is not None
    except Exception:  # noqa: BLE001 - also those of the library's own code
        return True


def _pace_now(device: Device, call: Call, dues: Sequence[bool]) -> int | None:
    """Return the pace at which a call is due now; `None`: it is not."""
    if dues[call.pace] or call.offline:
        return call.pace
    return AT_GROWTH if call.at_growth and device.grown and dues[AT_GROWTH] else None


def _note_growth(device: Device, call: Call, values: Sequence[Value]) -> None:
    """Note whether a device's used memory exceeds all earlier values by `GROWTH`, until its processes are listed."""
    if call.at_growth:
        device.grown = False
    used = next(
        (
            value
            for (metric, _, _), value in zip(call.columns, values, strict=True)
            if metric == catalog.HW_GPU_MEMORY_USAGE
        ),
        None,
    )
    if used is not None and used > device.most_used * GROWTH:
        device.most_used, device.grown = int(used), True


def open_source(context: Context) -> GpuNvidia:
    """Open the source; raises `Unavailable` without a driver, or without a device that the target may see."""
    return GpuNvidia(context)
