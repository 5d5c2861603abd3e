"""The NVIDIA source against a driver library, through the real nvidia-ml-py: a stand-in that a file scripts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.catalog import METRICS
from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sampler import Sampler
from otel_memwatch.monitor.sampling.sources import Context, gpu_nvidia
from otel_memwatch.monitor.sampling.sources.gpu_nvidia import GpuNvidia, processes, xid_errors
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import open_driver
from otel_memwatch.monitor.sampling.sources.gpu_nvidia.readings import Call
from tests.support import nvml
from tests.support.nvml import FIRST, GIB, SECOND, Machine

GUARD = 30.0
PERIOD = 0.02
PID = 4242
INITIAL = "pid:[4026531836]"

EVERYTHING: dict[str, object] = {
    "used": 5 * GIB,
    "reserved": GIB,
    "power": 250_000,
    "energy": 7_000,
    "temperature": 41,
    "gpu": 50,
    "memory": 10,
    "throttle": 0x24,
    "corrected": 3,
    "uncorrected": 1,
    "rx": 1000,
    "tx": 2000,
    "nvrx": 3,
    "nvtx": 4,
}
Opener = Callable[..., GpuNvidia]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    nvml.load()
    made = Machine(tmp_path / "script")
    monkeypatch.setenv(nvml.VARIABLE, str(made.script))
    return made


@pytest.fixture
def open_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """Makes sources of a process 4242 in the machine's own pid namespace, and closes them."""
    opened = []

    def make(
        namespace: str = INITIAL,
        environment: dict[str, str] | None = None,
        opening: float | None = GUARD,
        real_shares: bool = False,
        **settings: Any,
    ) -> GpuNvidia:
        (tmp_path / "self/ns").mkdir(parents=True, exist_ok=True)
        (tmp_path / "self/ns/pid").symlink_to(namespace)
        context = Context(PID, 0.1, proc=tmp_path, environment=environment or {}, opening_limit=opening)
        if not real_shares:
            monkeypatch.setattr(gpu_nvidia, "SHARES", (1e6,) * 4)
        made = GpuNvidia(context, **{"period": PERIOD, **settings})
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()


def columns(source: GpuNvidia) -> set[str]:
    return {column.metric for column in source.columns}


def read(
    source: GpuNvidia, metric: str, wanted: Callable[[Any], bool] = lambda value: value is not None, **by: str
) -> Any:
    """The next value of a column for which `wanted` holds; attributes as keywords with "_" for "."."""
    attributes = {name.replace("_", "."): value for name, value in by.items()}
    places = [
        place
        for place, column in enumerate(source.columns)
        if column.metric == metric and attributes.items() <= dict(column.attributes).items()
    ]
    assert len(places) == 1, f"{metric} {by}: {len(places)} columns"
    deadline = time.monotonic() + GUARD
    while time.monotonic() < deadline:
        value = source.read(time.monotonic())[places[0]]
        if wanted(value):
            return value
        time.sleep(0.003)
    raise AssertionError(f"no such value of {metric} came")


def failure(source: GpuNvidia, text: str) -> str:
    """Waits until reading fails with `text` in the message."""
    deadline = time.monotonic() + GUARD
    while time.monotonic() < deadline:
        try:
            source.read(time.monotonic())
        except Unavailable as error:
            if text in str(error):
                return str(error)
        time.sleep(0.003)
    raise AssertionError(f"no failure with {text!r}")


def test_all_figures_arrive_in_base_units(machine: Machine, open_source: Opener) -> None:
    machine.card(0, **EVERYTHING)
    gpu = open_source()
    assert read(gpu, "hw.gpu.memory.limit") == 80 * GIB
    assert read(gpu, "hw.gpu.memory.usage") == 5 * GIB
    assert read(gpu, "memwatch.gpu.memory.reserved") == GIB
    assert read(gpu, "memwatch.gpu.memory.free") == 74 * GIB
    assert read(gpu, "hw.gpu.utilization") == 0.5
    assert read(gpu, "memwatch.gpu.memory.utilization") == 0.1
    assert read(gpu, "hw.power") == 250.0
    assert read(gpu, "hw.energy") == 7.0
    assert read(gpu, "hw.temperature") == 41
    assert read(gpu, "hw.errors", error_type="ecc_corrected") == 3
    assert read(gpu, "hw.errors", error_type="ecc_uncorrected") == 1
    assert read(gpu, "hw.gpu.io", network_io_direction="receive") == 1000
    assert read(gpu, "hw.gpu.io", network_io_direction="transmit") == 2000
    assert read(gpu, "memwatch.gpu.nvlink.io", network_io_direction="receive") == 3 * 1024
    reasons = ("power", "thermal", "hardware", "sync")
    told = {why: read(gpu, "memwatch.gpu.throttled", memwatch_gpu_throttle_reason=why) for why in reasons}
    assert told == {"power": 1, "thermal": 1, "hardware": 0, "sync": 0}


def test_columns_are_rows_of_the_catalogue_and_name_their_device(
    machine: Machine, open_source: Opener
) -> None:
    machine.card(0, **EVERYTHING, accounting=1)
    found = open_source().columns
    assert found
    for column in found:
        attributes = dict(column.attributes)
        assert attributes["hw.id"] == FIRST
        assert set(attributes) <= set(METRICS[column.metric].attributes)
        assert list(column.attributes) == sorted(column.attributes)
        assert column.period in {1.0, 5.0}


H200 = {
    "memory": 117e-6,
    "utilization": 5140e-6,
    "energy": 3172e-6,
    "power": 710e-6,
    "temperature": 31e-6,
    "xid": 0.0,
}
"""Seconds of calls; others take 0.1 ms."""


@pytest.mark.parametrize(("devices", "seconds_between"), [(1, 2), (8, 15)])
def test_dear_questions_do_not_delay_the_memory(
    devices: int,
    seconds_between: float,
    machine: Machine,
    open_source: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for index in range(devices):
        machine.card(index, **EVERYTHING)
    monkeypatch.setattr(gpu_nvidia.Poller, "start", lambda poller: None)
    gpu = open_source(period=1.0, real_shares=True)
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(gpu_nvidia, "time", SimpleNamespace(monotonic=lambda: clock.now))
    answered: dict[str, list[float]] = {}

    def ask(_device: object, call: Call) -> list[int]:
        answered.setdefault(call.name, []).append(clock.now)
        clock.now += H200.get(call.name, 100e-6)
        return [1] * len(call.columns)

    monkeypatch.setattr(gpu, "_ask", ask)
    for _ in range(300):  # a minute
        before = clock.now
        gpu._poll()
        clock.now = before + 0.2
    memory, utilization = (len(answered[name]) / devices for name in ("memory", "utilization"))
    assert memory >= 60 / 0.5
    assert 60 / seconds_between <= utilization <= 60
    spent = sum(H200.get(name, 100e-6) * len(times) for name, times in answered.items())
    assert spent <= 0.011 * 60 + 0.08, "1 % of the time, and the first readings"


def test_time_in_the_drivers_thread_is_that_of_the_source(machine: Machine, open_source: Opener) -> None:
    machine.card(0, **EVERYTHING)
    gpu = open_source()
    sampler = Sampler([gpu], 0.01)
    assert read(gpu, "hw.gpu.memory.usage") == 5 * GIB
    assert sampler.health()["gpu_nvidia"].seconds > 0, "the sampler itself has read nothing"


def test_values_follow_the_device(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=GIB)
    gpu = open_source()
    assert read(gpu, "hw.gpu.memory.usage") == GIB
    machine.card(0, used=3 * GIB)
    assert read(gpu, "hw.gpu.memory.usage", lambda value: value == 3 * GIB)


def test_a_question_that_a_device_does_not_know_has_no_column(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=0)
    gpu = open_source()
    assert "hw.gpu.memory.usage" in columns(gpu)
    assert not columns(gpu) & {"hw.power", "hw.energy", "hw.temperature", "hw.gpu.utilization", "hw.gpu.io"}
    assert read(gpu, "hw.gpu.memory.usage") == 0
    assert "power" in gpu.info()[0]["absent"]


@pytest.mark.parametrize("code", [3, 4, 13], ids=["not supported", "no permission", "function not found"])
def test_a_refused_call_leaves_the_rest(machine: Machine, open_source: Opener, code: int) -> None:
    machine.card(0, **EVERYTHING)
    machine.also(f"fail nvmlDeviceGetTotalEnergyConsumption {code}")
    gpu = open_source()
    assert "hw.energy" not in columns(gpu)
    assert read(gpu, "hw.power") == 250.0


def test_an_old_driver_without_the_second_version_of_memory(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=5 * GIB, reserved=GIB)
    machine.also("fail nvmlDeviceGetMemoryInfo_v2 13")
    gpu = open_source()
    assert read(gpu, "hw.gpu.memory.usage") == 6 * GIB
    assert (
        gpu.read(time.monotonic())[[c.metric for c in gpu.columns].index("memwatch.gpu.memory.reserved")]
        is None
    )


def test_a_call_that_fails_once_is_a_gap_not_a_zero(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=GIB, power=100_000)
    gpu = open_source()
    machine.also("fail nvmlDeviceGetPowerUsage 999")
    power = [column.metric for column in gpu.columns].index("hw.power")
    usage = [column.metric for column in gpu.columns].index("hw.gpu.memory.usage")
    deadline = time.monotonic() + GUARD
    while time.monotonic() < deadline:
        values = gpu.read(time.monotonic())
        if values[usage] is not None and values[power] is None:
            break
        time.sleep(0.003)
    else:
        raise AssertionError("the gap never came")
    machine.without("fail")
    assert read(gpu, "hw.power") == 100.0


def test_the_drivers_own_samples_are_averaged_since_the_last_time(
    machine: Machine, open_source: Opener
) -> None:
    machine.card(0, **EVERYTHING)
    machine.also("sample 0 0 100 900000", "sample 0 1 100 99", "sample 0 2 100 99")
    gpu = open_source()
    machine.also(*(f"sample 0 0 {at} {power}" for at, power in ((200, 100_000), (300, 400_000))))
    machine.also("sample 0 1 200 20", "sample 0 2 200 30")
    assert read(gpu, "hw.power") == 250.0, "what the buffer held before the run does not count"
    machine.also("sample 0 0 400 100000", "sample 0 0 500 700000")
    assert read(gpu, "memwatch.gpu.power.peak") == 700.0


def test_memory_of_the_tree_is_distinguished(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=5 * GIB)
    machine.also(
        f"process 0 pid={PID} used={GIB}",
        f"process 0 pid={PID} used={GIB} list=graphics",
        f"process 0 pid=9 used={3 * GIB}",
    )
    gpu = open_source()
    assert read(gpu, "memwatch.tree.gpu.memory.usage") == GIB
    assert read(gpu, "memwatch.process.gpu.memory.usage") == GIB
    assert gpu.info()[0]["held"] == {str(PID): GIB}
    machine.without("process")
    assert read(gpu, "memwatch.tree.gpu.memory.usage", lambda value: value == 0) == 0


def test_processes_are_listed_at_once_when_the_devices_memory_has_grown(
    machine: Machine, open_source: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_nvidia, "SLOW_PERIOD", 1e6)  # never again after the first time
    machine.card(0, used=2 * GIB)
    gpu = open_source()
    assert read(gpu, "memwatch.tree.gpu.memory.usage") == 0
    machine.also(f"process 0 pid={PID} used={GIB}")
    machine.card(0, used=3 * GIB)
    assert read(gpu, "memwatch.tree.gpu.memory.usage") == GIB
    asked = machine.calls("nvmlDeviceGetComputeRunningProcesses_v3")
    for _ in range(5):
        read(gpu, "hw.gpu.memory.usage")
    assert machine.calls("nvmlDeviceGetComputeRunningProcesses_v3") == asked


def test_a_client_of_the_multi_process_service_belongs_to_the_tree(
    machine: Machine, open_source: Opener
) -> None:
    machine.card(0, used=5 * GIB)
    machine.also(f"process 0 pid={PID} used={GIB} list=mps", f"process 0 pid=9 used={3 * GIB}")
    assert read(open_source(), "memwatch.tree.gpu.memory.usage") == GIB


def test_an_old_driver_lists_processes_in_its_older_version(
    machine: Machine, open_source: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.card(0, used=5 * GIB)
    for name in ("Compute", "Graphics", "MPSCompute"):
        machine.also(f"fail nvmlDeviceGet{name}RunningProcesses_v3 13")
    listed = [SimpleNamespace(pid=PID, usedGpuMemory=GIB)]
    monkeypatch.setattr("pynvml.nvmlDeviceGetComputeRunningProcesses_v2", lambda _: listed)
    assert read(open_source(), "memwatch.tree.gpu.memory.usage") == GIB


def test_what_the_driver_does_not_tell_of_a_process_is_unknown(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=5 * GIB)
    machine.also(f"process 0 pid={PID}")
    gpu = open_source()
    place = [column.metric for column in gpu.columns].index("memwatch.tree.gpu.memory.usage")
    asked = machine.calls("nvmlDeviceGetComputeRunningProcesses_v3")
    deadline = time.monotonic() + GUARD
    while machine.calls("nvmlDeviceGetComputeRunningProcesses_v3") < asked + 4:
        assert time.monotonic() < deadline, "the driver was not asked again"
        assert gpu.read(time.monotonic())[place] is None
        time.sleep(0.003)
    assert gpu.read(time.monotonic())[place] is None


def test_in_a_container_pids_are_not_believed(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=5 * GIB, accounting=1)
    machine.also(f"process 0 pid={PID} used={GIB}", f"account 0 pid={PID} peak={GIB} running=1")
    gpu = open_source(namespace="pid:[4026532999]")
    assert not {name for name in columns(gpu) if "tree" in name or "process" in name}
    assert gpu.info()[0]["processes"].startswith("device-wide: this container")
    assert read(gpu, "hw.gpu.memory.usage") == 5 * GIB
    assert machine.calls("nvmlDeviceGetAccountingStats") == 0


def test_accounting_gives_the_exact_peak_also_after_the_process(
    machine: Machine, open_source: Opener
) -> None:
    machine.card(0, used=GIB, accounting=1)
    machine.also(
        f"account 0 pid={PID} peak={2 * GIB} running=1", "account 0 pid=9 peak=99999999999 running=1"
    )
    gpu = open_source()
    assert read(gpu, "memwatch.process.gpu.memory.peak") == 2 * GIB
    machine.without("account")
    machine.also(f"account 0 pid={PID} peak={3 * GIB} start={int(time.time() * 1e6)} running=0")
    assert read(gpu, "memwatch.process.gpu.memory.peak", lambda value: value == 3 * GIB)
    assert gpu.info()[0]["accounted"] == {str(PID): 3 * GIB}


def test_a_value_that_is_not_available_leaves_all_other_figures(
    machine: Machine, open_source: Opener
) -> None:
    machine.card(0, **EVERYTHING, accounting=1)
    machine.also(f"account 0 pid={PID} running=1", "sample 0 0 100 1", "sample 0 1 100 1", "sample 0 2 100 1")
    gpu = open_source()
    assert "memwatch.process.gpu.memory.peak" in columns(gpu)
    for _ in range(10):
        assert read(gpu, "hw.gpu.memory.usage") == 5 * GIB
        assert read(gpu, "hw.errors", error_type="ecc_corrected") == 3


def test_an_error_of_the_library_is_confined_to_its_question(
    machine: Machine, open_source: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.card(0, **EVERYTHING)
    gpu = open_source()

    def fails(*_: object) -> None:
        raise IndexError("a type of value that the library does not know")

    monkeypatch.setattr("pynvml.nvmlDeviceGetPowerUsage", fails)
    deadline = time.monotonic() + GUARD
    while "power" not in gpu.info()[0]["unknown"]:
        assert time.monotonic() < deadline
        assert read(gpu, "hw.gpu.memory.usage") == 5 * GIB
    assert "IndexError" in gpu.info()[0]["unknown"]["power"]["error"]
    assert list(gpu.info()[0]["unknown"]) == ["power"]


def test_the_time_without_an_answer_is_noted_with_its_first_error(
    machine: Machine, open_source: Opener
) -> None:
    machine.card(0, used=3 * GIB, power=100_000)
    gpu = open_source()
    assert read(gpu, "hw.gpu.memory.usage") == 3 * GIB
    assert gpu.info()[0]["unknown"] == {}
    machine.also("fail nvmlDeviceGetMemoryInfo_v2 999")
    deadline = time.monotonic() + GUARD
    while gpu.info()[0]["unknown"].get("memory", {}).get("seconds", 0) < 0.2:
        assert time.monotonic() < deadline
        read(gpu, "hw.power")
    assert gpu.info()[0]["unknown"]["memory"]["error"] == "Unknown Error"
    machine.without("fail")
    assert read(gpu, "hw.gpu.memory.usage") == 3 * GIB
    seconds = gpu.info()[0]["unknown"]["memory"]["seconds"]
    time.sleep(3 * PERIOD)
    assert gpu.info()[0]["unknown"]["memory"]["seconds"] == seconds, "only without an answer"


def test_a_process_of_the_same_number_before_the_run_is_not_ours(
    machine: Machine, open_source: Opener
) -> None:
    machine.card(0, accounting=1)
    machine.also(f"account 0 pid={PID} peak={70 * GIB} start=1000000 running=0")
    driver = open_driver()
    try:
        device = driver.devices()[0]
        assert processes.accounted_peaks(driver, device, [PID], time.time()) == {}
        assert processes.accounted_peaks(driver, device, [PID], 0.5) == {PID: 70 * GIB}
    finally:
        driver.close()


def test_without_accounting_there_is_no_peak(machine: Machine, open_source: Opener) -> None:
    machine.card(0, accounting=0)
    gpu = open_source()
    assert "memwatch.process.gpu.memory.peak" not in columns(gpu)
    assert gpu.info()[0]["accounting"] is False


def test_only_devices_that_the_target_may_see_are_recorded(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=1)
    machine.card(1, used=2)
    gpu = open_source(environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert {dict(column.attributes)["hw.id"] for column in gpu.columns} == {SECOND}
    assert read(gpu, "hw.gpu.memory.usage") == 2
    assert [(device["id"], device["visible"]) for device in gpu.info()] == [(FIRST, False), (SECOND, True)]


def test_an_uncertain_order_records_all_and_says_so(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=1)
    machine.card(1, used=2, name="Tesla_T4")
    gpu = open_source(environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert {dict(column.attributes)["hw.id"] for column in gpu.columns} == {FIRST, SECOND}
    assert [device["visible"] for device in gpu.info()] == [None, None]


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_target_that_sees_no_gpu_has_no_source(machine: Machine, open_source: Opener, hidden: str) -> None:
    machine.card(0)
    with pytest.raises(Unavailable, match="CUDA_VISIBLE_DEVICES hides all 1"):
        open_source(environment={"CUDA_VISIBLE_DEVICES": hidden})


def test_instances_are_devices_and_share_their_cards_power(machine: Machine, open_source: Opener) -> None:
    machine.card(0, **EVERYTHING)
    machine.instance(0, 0, total=10 * GIB, used=GIB, gi=7, ci=0)
    machine.instance(0, 1, total=20 * GIB, used=2 * GIB, gi=8, ci=0)
    machine.also(f"process 0 pid={PID} used={GIB} mig=1")
    gpu = open_source()
    first, second = (f"MIG-0{index}000000-dddd-eeee-ffff-000000000000" for index in range(2))
    assert read(gpu, "hw.gpu.memory.usage", hw_id=first) == GIB
    assert read(gpu, "hw.gpu.memory.limit", hw_id=second) == 20 * GIB
    assert read(gpu, "memwatch.tree.gpu.memory.usage", hw_id=second) == GIB
    assert read(gpu, "memwatch.tree.gpu.memory.usage", hw_id=first) == 0
    assert read(gpu, "hw.power", hw_id=FIRST) == 250.0
    parents = {
        dict(c.attributes).get("hw.parent") for c in gpu.columns if dict(c.attributes)["hw.id"] == first
    }
    assert parents == {FIRST}
    assert ("hw.gpu.memory.usage", FIRST) not in {
        (c.metric, dict(c.attributes)["hw.id"]) for c in gpu.columns
    }


def test_an_xid_error_is_counted_and_kept(machine: Machine, open_source: Opener) -> None:
    machine.card(0)
    gpu = open_source()
    assert read(gpu, "hw.errors", error_type="xid") == 0
    machine.also("event 0 79")
    assert read(gpu, "hw.errors", lambda value: value == 1, error_type="xid") == 1
    assert [event["code"] for event in gpu.info()[0]["xid"]] == [79]


def test_a_lost_device_goes_silent_and_the_other_goes_on(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=1)
    machine.card(1, used=2)
    gpu = open_source()
    assert read(gpu, "hw.gpu.memory.usage", hw_id=FIRST) == 1
    machine.also("fail nvmlDeviceGetMemoryInfo_v2 15 0")
    place = next(i for i, c in enumerate(gpu.columns) if c.metric == "hw.gpu.memory.usage")
    deadline = time.monotonic() + GUARD
    while gpu.info()[0]["trouble"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.003)
    read(gpu, "hw.gpu.memory.usage", hw_id=SECOND)
    for _ in range(3):
        assert gpu.read(time.monotonic())[place] is None
        assert read(gpu, "hw.gpu.memory.usage", hw_id=SECOND) == 2
    assert "GPU is lost" in gpu.info()[0]["trouble"]


def test_the_last_device_lost_is_a_failure_and_it_can_come_back(
    machine: Machine, open_source: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_nvidia, "REOPEN", 0.1)
    machine.card(0, used=1)
    gpu = open_source()
    assert read(gpu, "hw.gpu.memory.usage") == 1
    machine.also("fail nvmlDeviceGetMemoryInfo_v2 15", "fail nvmlDeviceGetHandleByUUID 15")
    assert "needs a reset" in failure(gpu, "GPU is lost")
    machine.without("fail")
    machine.card(0, used=7)
    deadline = time.monotonic() + GUARD
    while time.monotonic() < deadline:
        try:
            assert read(gpu, "hw.gpu.memory.usage", lambda value: value == 7) == 7
            break
        except Unavailable:
            time.sleep(0.003)


def test_a_driver_in_use_by_the_thread_of_events_is_not_shut_down(
    machine: Machine, open_source: Opener
) -> None:
    machine.card(0)
    gpu = open_source()
    machine.also("hang nvmlEventSetWait_v2")
    deadline = time.monotonic() + GUARD
    asked = -1
    while (now := machine.calls("nvmlEventSetWait_v2")) != asked or not now:  # no more: the thread hangs
        assert time.monotonic() < deadline
        asked = now
        time.sleep(2 * xid_errors._WAIT_MILLISECONDS / 1000)
    gpu.close()
    assert machine.calls("nvmlShutdown") == 0
    machine.without("hang")
    while machine.calls("nvmlEventSetFree") == 0:
        assert time.monotonic() < deadline, "the thread does not end"
        time.sleep(0.003)
    gpu.close()
    while machine.calls("nvmlShutdown") == 0:  # on a busy machine, the thread may still be ending
        assert time.monotonic() < deadline
        gpu.close()
    assert machine.calls("nvmlShutdown") == 1


def test_a_driver_that_hangs_stops_only_this_source(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=1)
    gpu = open_source()
    assert read(gpu, "hw.gpu.memory.usage") == 1
    machine.also("hang nvmlDeviceGetMemoryInfo_v2")
    assert "The NVIDIA driver has not answered for" in failure(gpu, "not answered")
    machine.without("hang")
    deadline = time.monotonic() + GUARD
    while time.monotonic() < deadline:
        try:
            assert read(gpu, "hw.gpu.memory.usage") == 1
            break
        except Unavailable:
            time.sleep(0.003)


def test_a_driver_that_hangs_at_opening_is_left(machine: Machine, open_source: Opener) -> None:
    machine.card(0)
    machine.also("hang nvmlInitWithFlags")
    with pytest.raises(Unavailable, match=r"did not answer within 0.2 s .*nvidia-persistenced"):
        open_source(opening=0.2)
    machine.without("hang")


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (18, "reboot, or reload the nvidia modules"),
        (9, "modprobe nvidia"),
        (4, "/dev/nvidia"),
        (999, "nvidia-smi"),
    ],
)
def test_a_driver_that_cannot_be_used_is_absent_with_a_hint(
    machine: Machine, open_source: Opener, code: int, hint: str
) -> None:
    machine.also(f"init {code}")
    with pytest.raises(Unavailable) as caught:
        open_source()
    assert hint in str(caught.value)


def test_no_card_is_absent(machine: Machine, open_source: Opener) -> None:
    with pytest.raises(Unavailable, match="nvidia-smi -L lists none"):
        open_source()


def test_process_lists_are_asked_for_at_a_fifth_of_the_rate(machine: Machine, open_source: Opener) -> None:
    machine.card(0, used=1)
    gpu = open_source(period=0.1)
    for _ in range(11):
        read(gpu, "hw.gpu.memory.usage")
    lists = machine.calls("nvmlDeviceGetComputeRunningProcesses_v3")
    assert 2 <= lists <= machine.calls("nvmlDeviceGetMemoryInfo_v2") / 2


def test_costs_are_measured_by_kind_of_question(machine: Machine, open_source: Opener) -> None:
    machine.card(0, **EVERYTHING)
    gpu = open_source()
    read(gpu, "hw.gpu.memory.usage")
    costs = gpu.costs()
    assert {"memory", "power", "energy", "processes"} <= set(costs)
    assert all(0 < seconds < GUARD for seconds in costs.values())


def test_the_library_is_the_stand_in(machine: Machine) -> None:
    assert f"{nvml.directory()}/{nvml.LIBRARY}" in Path(f"/proc/{os.getpid()}/maps").read_text()
