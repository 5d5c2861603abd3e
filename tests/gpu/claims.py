"""The claims: each measures on the GPU and says what it found. Run as a program it prints a table.

python -m tests.gpu.claims              all
python -m tests.gpu.claims snapshots    those with this word in their name
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.gpu.hardware import MIB, RAW, missing, nvml_missing, run, torch_missing

if TYPE_CHECKING:
    from collections.abc import Callable

GRANULE = 2 * MIB
"""PyTorch rounds requests up to 512 bytes, and takes memory from the device in steps of 2 MiB."""


class Finding(NamedTuple):
    """One claim, as measured."""

    holds: bool
    measured: str
    expected: str


class Claim(NamedTuple):
    """One thing that is said about GPUs."""

    name: str
    measure: Callable[[], Finding]
    needs_torch: bool = False
    needs_nvml: bool = False


_MARKED = """
import torch, sys
from otel_memwatch import operation
torch.zeros(1, device="cuda")
x = torch.empty(300 * 2**20, dtype=torch.uint8, device="cuda")
del x
with operation("outer"):
    y = torch.empty(50 * 2**20, dtype=torch.uint8, device="cuda")
    with operation("inner"):
        z = torch.empty(100 * 2**20, dtype=torch.uint8, device="cuda"); del z
    with operation("small"):
        z = torch.empty(20 * 2**20, dtype=torch.uint8, device="cuda"); del z
del y
"""


def _operations(code: str, **variables: str) -> dict[str, dict[str, object]]:
    """Figures of each operation that a program marks, by name."""
    with tempfile.TemporaryDirectory() as directory:
        run(code, OTEL_MEMWATCH_RUN_DIR=directory, **variables)
        lines = [
            json.loads(line)
            for path in Path(directory).glob("operations-*.jsonl")
            for line in path.read_text().splitlines()
        ]
    names = {line["open"]: line["name"] for line in lines if "open" in line}
    figures = {names[line["close"]]: line.get("gpu") or {} for line in lines if "close" in line}
    return {name: next(iter(devices.values())) for name, devices in figures.items()}


def exact_operations() -> Finding:
    """With resets every operation's peak is exact, nested ones too."""
    found = _operations(_MARKED, OTEL_MEMWATCH_EXACT_GPU="1")
    wanted = {"outer": 150 * MIB, "inner": 150 * MIB, "small": 70 * MIB}
    off = {name: int(str(found[name]["peak"])) - size for name, size in wanted.items()}
    exact = all(found[name]["certainty"] == "exact" for name in wanted)
    holds = exact and all(0 <= error <= GRANULE for error in off.values())
    return Finding(
        holds, ", ".join(f"{name} {error:+d} B" for name, error in off.items()), f"0 to {GRANULE} B, exact"
    )


def bounded_operations() -> Finding:
    """Without resets the truth lies within the bounds, and no counter of the program's is touched."""
    code = _MARKED + "assert torch.cuda.max_memory_allocated() >= 300 * 2**20"
    found = _operations(code)
    wanted = {"outer": 150 * MIB, "inner": 150 * MIB, "small": 70 * MIB}
    within = {
        name: int(str(found[name]["low"])) <= size + GRANULE and size <= int(str(found[name]["high"]))
        for name, size in wanted.items()
    }
    return Finding(all(within.values()), str(within), "all within their bounds")


SOURCE = """
import json, os, sys, time
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.gpu_nvidia import GpuNvidia
def opened():
    return GpuNvidia(Context(os.getpid(), 0.1, environment=os.environ, opening_limit=60))
def values(gpu, wanted, seconds=20):
    end, seen = time.monotonic() + seconds, {}
    while time.monotonic() < end and not wanted <= set(seen):
        for column, value in zip(gpu.columns, gpu.read(time.monotonic())):
            if value is not None:
                seen[column.metric] = value
        time.sleep(0.02)
    return seen
"""


def device_memory() -> Finding:
    """Memory taken from CUDA itself appears in the device's figure, and in the tree's where pids are ours."""
    code = (
        RAW
        + SOURCE
        + """
context()
gpu = opened()
before = values(gpu, {"hw.gpu.memory.usage"})["hw.gpu.memory.usage"]
memory = take(512 * 2**20)
time.sleep(1.5)
after = values(gpu, {"hw.gpu.memory.usage"})["hw.gpu.memory.usage"]
gpu.read(time.monotonic()); time.sleep(1.5)
after = max(after, values(gpu, {"hw.gpu.memory.usage"})["hw.gpu.memory.usage"])
tree = values(gpu, {"memwatch.tree.gpu.memory.usage"}, 12).get("memwatch.tree.gpu.memory.usage")
print(json.dumps([after - before, tree, gpu.info()[0]["processes"]]))
"""
    )
    grown, tree, scope = json.loads(run(code).stdout)
    held = tree is None or tree >= 512 * MIB
    told = "device-wide" if tree is None else f"tree {tree / MIB:.0f} MiB"
    holds = (
        abs(grown - 512 * MIB) <= 32 * MIB and held and (tree is not None or scope.startswith("device-wide"))
    )
    return Finding(
        holds, f"device {grown / MIB:+.0f} MiB, {told}", "+512 MiB, and by process or said not to be"
    )


def blip() -> Finding:
    """An allocation far shorter than any interval is in the operation's peak."""
    code = """
import torch
from otel_memwatch import operation
torch.zeros(1, device="cuda")
with operation("blip"):
    x = torch.empty(700 * 2**20, dtype=torch.uint8, device="cuda"); del x
"""
    found = _operations(code)["blip"]
    error = int(str(found["peak"])) - 700 * MIB
    holds = 0 <= error <= GRANULE and found["certainty"] == "exact"
    return Finding(holds, f"{error:+d} B, {found['certainty']}", f"0 to {GRANULE} B, exact")


def two_processes() -> Finding:
    """Of two processes on one card the tree's figure counts ours, the device's both."""
    code = (
        RAW
        + SOURCE
        + """
import subprocess
other = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
other.stdout.readline()
context(); memory = take(128 * 2**20)
gpu = opened()
seen = values(gpu, {"hw.gpu.memory.usage", "memwatch.tree.gpu.memory.usage"}, 12)
other.stdin.close(); other.wait()
print(json.dumps([seen["hw.gpu.memory.usage"], seen.get("memwatch.tree.gpu.memory.usage")]))
"""
    )
    other = (
        RAW
        + 'context(); memory = take(1024 * 2**20); print("ready", flush=True); import sys; sys.stdin.read()'
    )
    device, tree = json.loads(run(code, other).stdout)
    apart = tree is None or 128 * MIB <= tree < 1024 * MIB
    told = "device-wide" if tree is None else f"{tree / MIB:.0f} MiB"
    return Finding(
        device >= 1152 * MIB and apart,
        f"device {device / MIB:.0f} MiB, ours {told}",
        ">= 1152 MiB, ours apart",
    )


def remapping() -> Finding:
    """CUDA_VISIBLE_DEVICES, by index and by UUID, names the device that CUDA takes."""
    names = json.loads(
        run("import json, otel_memwatch as m; print(json.dumps([g.id for g in m.gpus()]))").stdout
    )
    told = """
import json, torch, otel_memwatch as m
print(json.dumps([[g.id for g in m.gpus()], ["GPU-" + str(torch.cuda.get_device_properties(i).uuid)
    for i in range(torch.cuda.device_count())]]))
"""
    last = names[-1]
    wrong = []
    for visible in ("0", str(len(names) - 1), last, last[:12], "", "-1"):
        ours, cudas = json.loads(
            run(told, CUDA_VISIBLE_DEVICES=visible, CUDA_DEVICE_ORDER="PCI_BUS_ID").stdout
        )
        if ours != cudas:
            wrong.append(f"{visible!r}: {ours} for {cudas}")
    return Finding(not wrong, "; ".join(wrong) or f"as CUDA, {len(names)} devices", "as CUDA")


_TRAINING = """
import json, os, sys, time, torch
from contextlib import nullcontext
from otel_memwatch import operation
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(256, 1024, device="cuda")
def steps(number, mark):
    torch.cuda.synchronize(); began = time.perf_counter()
    for _ in range(number):
        with mark("step"):
            optimizer.zero_grad(); model(data).square().mean().backward(); optimizer.step()
    torch.cuda.synchronize()
    return time.perf_counter() - began
plain = lambda name: nullcontext()
steps(200, plain)
print(json.dumps([[steps(200, plain), steps(200, operation)] for _ in range(15)]))
"""


def overhead() -> Finding:
    """A training loop of the smallest sensible step is not slowed by an operation for each step."""
    with tempfile.TemporaryDirectory() as directory:
        pairs = json.loads(run(_TRAINING, OTEL_MEMWATCH_RUN_DIR=directory).stdout)
    ratio = statistics.median(marked / plain for plain, marked in pairs)
    step = statistics.median(plain for plain, _ in pairs) / 200
    return Finding(ratio <= 1.05, f"{ratio:.3f} x of a step of {step * 1e6:.0f} us", "<= 1.05 x")


def costs() -> Finding:
    """The driver's calls stay below the share of the wall time that they may take."""
    code = (
        SOURCE
        + """
gpu = opened()
end = time.monotonic() + 12
while time.monotonic() < end:
    gpu.read(time.monotonic()); time.sleep(0.1)
print(json.dumps(gpu.costs()))
"""
    )
    seconds = json.loads(run(code).stdout)
    slow = dict.fromkeys(("processes", "accounting", "throttles", "memory errors", "pcie", "nvlink"), 0.2)
    share = sum(cost * {**slow, "memory": 5}.get(name, 1) for name, cost in seconds.items())
    listed = ", ".join(
        f"{name} {cost * 1e6:.0f} us" for name, cost in sorted(seconds.items(), key=lambda item: -item[1])
    )
    return Finding(share <= 0.01, f"{100 * share:.3f} % of the time: {listed}", "<= 1 %")


_OUT_OF_MEMORY = """
import torch
torch.zeros(1, device="cuda")
held = [torch.empty(2**28, dtype=torch.uint8, device="cuda")]
held.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))
try:
    held.append(torch.empty(2**44, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError:
    print("out of memory")
"""
_SNAPSHOTS = """
import json, os, pickle, subprocess, sys
ours, run = [sys.executable, "-m", "otel_memwatch"], os.path.join(sys.argv[2], "run")
watched = [*ours, "wrap", "--torch-snapshot", "--out", run, "--", sys.executable, "-c", sys.argv[1]]
done = subprocess.run(watched, capture_output=True, text=True, check=True)
listed = json.loads(subprocess.check_output([*ours, "report", run, "--json"]))["torch_snapshots"]
report = subprocess.check_output([*ours, "report", run], text=True)
found = {one["kind"]: one for one in listed}
snapshots = {}
for kind, one in found.items():
    with open(os.path.join(run, os.path.basename(one["path"])), "rb") as file:
        snapshots[kind] = pickle.load(file)
segments = {kind: sum(one["total_size"] for one in it["segments"]) for kind, it in snapshots.items()}
traces = [event for device in snapshots["oom"]["device_traces"] for event in device]
checks = {
    "same output": done.stdout == "out of memory\\n",
    "one of each": len(listed) == 2 and set(found) == {"peak", "oom"},
    "rank": {one["rank"] for one in listed} == {3},
    "peak": segments["peak"] >= 5 * 2**28 and found["peak"]["reserved_bytes"] >= 5 * 2**28,
    "request": found["oom"]["requested_bytes"] == 2**44,
    "stacks": any(event.get("frames") for event in traces),
    "in the report": all(os.path.basename(one["path"]) in report for one in listed),
    "in the summary": "allocation of 16.00 TiB failed on GPU 0 (rank 3)" in done.stderr,
}
print(json.dumps([name for name, holds in checks.items() if not holds] and [checks, listed, done.stderr]))
"""


def snapshots() -> Finding:
    """Snapshots of the allocator are written at a new peak and when an allocation fails, and the program gets PyTorch's error."""
    with tempfile.TemporaryDirectory() as directory:
        wrong = json.loads(run(_SNAPSHOTS, _OUT_OF_MEMORY, directory, RANK="3").stdout)
    return Finding(
        not wrong, str(wrong or "a peak and a failed allocation, of rank 3"), "one of each, listed"
    )


CLAIMS = (
    Claim("peaks of operations, exact", exact_operations, needs_torch=True),
    Claim("peaks of operations, bounds", bounded_operations, needs_torch=True),
    Claim("memory from CUDA itself", device_memory, needs_nvml=True),
    Claim("a blip between samples", blip, needs_torch=True),
    Claim("two processes on one card", two_processes, needs_nvml=True),
    Claim("CUDA_VISIBLE_DEVICES", remapping, needs_torch=True, needs_nvml=True),
    Claim("snapshots of PyTorch's allocator", snapshots, needs_torch=True),
    Claim("overhead on a training loop", overhead, needs_torch=True),
    Claim("costs of the driver's calls", costs, needs_nvml=True),
)


def reason_to_skip(claim: Claim) -> str | None:
    """Why a claim cannot be measured here."""
    return (
        missing()
        or (torch_missing() if claim.needs_torch else None)
        or (nvml_missing() if claim.needs_nvml else None)
    )


def main() -> int:
    """Prints the table; 1 when a claim does not hold, 2 when nothing could be measured."""
    held = []
    words = sys.argv[1:]
    for claim in (one for one in CLAIMS if all(word in one.name for word in words)):
        reason = reason_to_skip(claim)
        if reason is not None:
            print(f"skipped  {claim.name}: {reason}")
            continue
        try:
            finding = claim.measure()
        except Exception as error:
            finding = Finding(False, f"{type(error).__name__}: {error}", "an answer")
        held.append(finding.holds)
        print(
            f"{'holds  ' if finding.holds else 'FAILS  '}  {claim.name}: {finding.measured} (expected {finding.expected})"
        )
    return 2 if not held else int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
