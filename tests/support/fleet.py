"""A simulated fleet: runs that were recorded and scraped, each repeated under other names, at other times, on other branches.

Every value that Prometheus gets is one that a run served, but for memory, which is scaled from run to run, so there is
something to compare, and for the time of the end.

python -m tests.support.fleet       draws the previews of the dashboards of many runs, in two minutes, as root
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from dashboards.thresholds import RULE_SECONDS
from tests.support.control_group import group
from tests.support.monitored import ROOT, RULES
from tests.support.nvml import FIRST, GIB, SECOND, Machine
from tests.support.peers import Prometheus, needed

RUNS, HOURS = 240, 2
"""Size of the fleet that `of_all_kinds` serves, and the time in which its runs end."""

BEFORE = ("--metrics=all", "--operation-metrics=histograms")
"""All that a run could ever send."""

_MIB = 1 << 20
_BLOCK = 7200
"""Seconds of a block: promtool reads its file once for each."""

_STEPS = """
import os, sys, time
from otel_memwatch import operation
for name in ("Load", "Transform", "Export", "Store"):
    with operation(name):
        block = bytearray(int(sys.argv[1]) << 20)
        block[::4096] = b"x" * len(block[::4096])
        while name == "Store" and not os.path.exists(sys.argv[3]):
            time.sleep(0.05)
raise SystemExit(int(sys.argv[2]))
"""
_TOO_MUCH = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
block = bytearray(300 << 20)
block[::4096] = b"x" * len(block[::4096])
"""
KINDS = ("train", "tests", "broken", "large", "gpu")
_SCRAPES = 3
"""Of each recorded run, while it goes on."""
_SELDOM = (
    "memwatch_tree_memory_swap_bytes",
    "memwatch_cgroup_cpu_throttled_seconds_total",
    "system_memory_linux_available_bytes",
)
"""Of each source that is read seldom one metric, with all of them: on a busy machine they come after many scrapes."""
_PATIENCE = 30
"""Seconds: a machine may lack some of them."""


class Scraped(NamedTuple):
    """A recorded run as Prometheus saw it: its pages, the last one of its end."""

    service: str
    pages: Sequence[Mapping[str, str]]
    """Value of each series, in the order of the page."""

    @property
    def series(self) -> set[str]:
        """All that it ever had."""
        return set().union(*self.pages)


class Simulated(NamedTuple):
    """One run of the fleet."""

    number: int
    of: Scraped
    start: float
    """Unix seconds."""
    seconds: float
    branch: str
    scale: float
    """Of its memory."""


def record(
    directory: Path,
    kinds: Sequence[str] = KINDS,
    *,
    times: int = 1,
    options: Sequence[str] = (),
    at_once: int = 3,
) -> list[Scraped]:
    """Runs each kind of job so many times, for real, and scrapes it up to its end."""
    directory.mkdir(parents=True, exist_ok=True)
    machine = Machine(directory / "nvml")
    for index, uuid in enumerate((FIRST, SECOND)):
        machine.card(
            index, uuid=uuid, used=50 * GIB, reserved=GIB, power=300_000, energy=5_000_000, temperature=55, throttle=4,
            corrected=1, uncorrected=0, gpu=40, memory=20, rx=1000, tx=1000, nvrx=1000, nvtx=1000, mig=0,
        )  # fmt: skip
    steps = [sys.executable, "-c", _STEPS]
    jobs = {
        "train": ([*steps, "60", "0"], {}, 512 * _MIB),
        "tests": ([*steps, "20", "0"], {}, 256 * _MIB),
        "broken": ([*steps, "10", "3"], {}, None),
        "large": ([sys.executable, "-c", _TOO_MUCH], {}, 200 * _MIB),
        "gpu": ([*steps, "30", "0"], machine.environment(), None),
    }

    def one(job: tuple[int, str]) -> Scraped:
        number, name = job
        command, environment, limit = jobs[name]
        place = directory / f"{name}-{number}"
        return _scraped(name, place, [*command, f"{place}-may-end"], environment, limit, options)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, [(number, name) for number in range(times) for name in kinds]))


def _scraped(service, directory, command, environment, limit, options) -> Scraped:
    """`command` ends when the file that is its last argument exists."""
    attributes = "memwatch.group.id=GROUP,memwatch.group.rank=NUMBER,vcs.ref.head.name=BRANCH,cicd.pipeline.name=ci,cicd.pipeline.task.name=TASK,service.version=1.0"
    wrap = [
        sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--no-report", "--prometheus=0", "--linger=30",
        f"--out={directory}", *options, "--", *command,
    ]  # fmt: skip
    with group(limit) if limit else contextlib.nullcontext() as place:
        run = subprocess.Popen(
            wrap,
            env={
                **os.environ,
                "OTEL_SERVICE_NAME": service,
                "OTEL_RESOURCE_ATTRIBUTES": attributes,
                **environment,
            },
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=place.enter if place else None,  # noqa: PLW1509 - one write to a file
        )
        said = run.stderr.readline()
        url = re.search(r"http://\S+", said)
        assert url, said + run.stderr.read()
        pages: list[dict[str, str]] = []
        until = time.monotonic() + _PATIENCE
        while run.poll() is None:
            with (
                contextlib.suppress(OSError, HTTPException),
                urllib.request.urlopen(url[0], timeout=20) as response,
            ):
                pages.append(_page(response.read().decode()))
            if len(pages) >= _SCRAPES and (
                "--metrics=all" not in options
                or time.monotonic() > until
                or set(_SELDOM) <= {series.partition("{")[0] for series in pages[-1]}
            ):
                Path(command[-1]).touch()
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(0.25)
        run.stderr.close()
    assert pages[-1]["memwatch_run_active"] == "0.0", f"{service}: the end was not scraped; {run.returncode}"
    return Scraped(service, pages)


def _page(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {series: value for series, _, value in (line.rpartition(" ") for line in lines)}


def simulated(
    runs: Sequence[Scraped], count: int, end: float, span: float, seconds: tuple[float, float], seed: int = 1
) -> list[Simulated]:
    """So many runs within `span` seconds before `end`; half of them on main, one branch needs half as much again."""
    chance = random.Random(seed)
    fleet = []
    for number in range(count):
        branch = "main" if number % 2 == 0 else f"branch-{number // 2 % 12}"
        lasting = chance.uniform(*seconds)
        start = end - span + chance.uniform(0, span - lasting)
        scale = chance.uniform(1.0, 1.1) * (1.5 if branch == "branch-1" else 1.0)
        # Each kind on main and on branches: its number is not the branch's.
        of = runs[number // 2 % len(runs)] if number % 2 == 0 else runs[chance.randrange(len(runs))]
        fleet.append(Simulated(number, of, start, lasting, branch, scale))
    return fleet


def lines(run: Simulated, step: float) -> Iterator[tuple[float, str]]:
    """Samples of a run in the text format, each with its time, as if scraped each `step` seconds and at the end."""
    pages, last = run.of.pages[:-1] or run.of.pages, run.of.pages[-1]
    scrapes = max(1, int(run.seconds // step))
    end = run.start + run.seconds
    labelled: dict[str, str] = {}
    for scrape in range(scrapes + 1):
        page = last if scrape == scrapes else pages[scrape * len(pages) // scrapes]
        moment = end if scrape == scrapes else run.start + scrape * step
        for series, value in page.items():
            known = labelled.get(series)
            if known is None:
                known = labelled[series] = _labelled(series, run)
            yield moment, f"{known} {_value(series, value, run.scale, end)} {moment:.3f}\n"


_OF_MEMORY = re.compile(r"memwatch_(tree|process|operation)_memory_\w*bytes(?!_bucket|_count|_sum)")


def _labelled(series: str, run: Simulated) -> str:
    name, _, rest = series.partition("{")
    place = f'cluster="one",namespace="team-{run.number % 3}",job="{run.of.service}",instance="{run.of.service}-{run.number}"'
    group = f"group-{run.number % 7}"
    rest = rest.replace('"GROUP"', f'"{group}"').replace('"NUMBER"', f'"{run.number // 7}"')
    rest = rest.removesuffix("}").replace("BRANCH", run.branch).replace("TASK", f"job-{run.number % 5}")
    return f"{name}{{{place}{',' if rest else ''}{rest}}}"


def _value(series: str, value: str, scale: float, end: float) -> str:
    if series == "memwatch_run_end_time_seconds":
        return repr(end)
    return repr(float(value) * scale) if scale != 1 and _OF_MEMORY.match(series) else value


def blocks(fleet: Sequence[Simulated], directory: Path, step: float) -> Path:
    """Data of a Prometheus that scraped them, made by promtool."""
    data = directory / "data"
    by_block: dict[int, list[Simulated]] = {}
    for run in fleet:
        for block in range(int(run.start // _BLOCK), int((run.start + run.seconds) // _BLOCK) + 1):
            by_block.setdefault(block, []).append(run)
    for block, members in by_block.items():
        text = directory / "block.om"
        with text.open("w") as file:
            for run in members:
                file.writelines(line for moment, line in lines(run, step) if moment // _BLOCK == block)
            file.write("# EOF\n")
        _promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", text, data)
        text.unlink()
    return data


def served(fleet: Sequence[Simulated], directory: Path, step: float) -> Prometheus:
    """A server of these runs, and of what the rules would have recorded while they went on."""
    data = blocks(fleet, directory, step)
    start = min(run.start for run in fleet)
    # A run that has ended is looked back at for five minutes.
    end = max(run.start + run.seconds for run in fleet) + 300
    server = Prometheus(directory / "recording", data=data)
    try:
        _promtool(
            "tsdb", "create-blocks-from", "rules", f"--start={start:.0f}", f"--end={end:.0f}", f"--url={server.url}",
            f"--output-dir={data}", f"--eval-interval={RULE_SECONDS}s", RULES / "memwatch-records.yml",
        )  # fmt: skip
    finally:
        server.close()
    return Prometheus(directory / "server", data=data)


def _promtool(*arguments: object) -> None:
    done = subprocess.run(
        [needed("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def of_all_kinds(directory: Path) -> tuple[Prometheus, Sequence[Simulated], float]:
    """Return the server of runs of all kinds, the runs, and the end of the last one."""
    few = record(directory / "default", ("train", "tests", "broken", "large"))
    # All metrics, for what a dashboard shows only with these.
    everything = record(directory / "all", ("gpu",), options=BEFORE)
    end = time.time() // _BLOCK * _BLOCK - 60
    runs = simulated([*few, *everything], RUNS, end, HOURS * 3600, (120, 480))
    return served(runs, directory, 30), runs, end


def _main() -> None:
    from dashboards import previews
    from dashboards.boards import boards

    with tempfile.TemporaryDirectory() as directory:
        server, _, end = of_all_kinds(Path(directory))
        try:
            shown = end - 2000  # while runs are active
            asked = previews.PreviewSource(server.url, end - HOURS * 3600, shown, ".+")
            for name in ("memwatch-ci", "memwatch-cost", "memwatch-groups"):
                out = Path(previews.__file__).parent / "previews" / f"{name}.png"
                previews.draw(boards()[f"{name}.json"], asked).savefig(out, dpi=80)
        finally:
            server.close()


if __name__ == "__main__":
    _main()
