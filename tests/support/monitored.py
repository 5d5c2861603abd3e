"""Real runs that a real Prometheus scrapes, with the rules loaded: the demo, one that the OOM killer ends, one with GPUs.

python -m tests.support.monitored       draws the dashboards' previews of them, in a minute, as root
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from dashboards.boards import boards
from dashboards.thresholds import ARRIVAL_SECONDS, RULE_SECONDS
from tests.support.control_group import group
from tests.support.nvml import FIRST, GIB, SECOND, Machine
from tests.support.peers import Prometheus, free_port, needed

ROOT = Path(__file__).parents[2]
RULES = ROOT / "dashboards" / "prometheus"
OOM_LIMIT = 2 << 30

GPU_PROGRAM = """
import os, sys, time
from otel_memwatch import operation
with operation("train"):
    time.sleep(float(sys.argv[1]))
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.1)
"""
_THIS, _ONE_BEFORE = f" offset {ARRIVAL_SECONDS}s", f" offset {ARRIVAL_SECONDS + RULE_SECONDS}s"
_SLOW = ("memwatch_tree_gpu_memory_usage_bytes", "memwatch_gpu_throttled", "hw_gpu_io_bytes_total")
"""Read seldom: on a busy machine long after the run has begun."""


class Monitored:
    """The server, with what was scraped between `begin` and `end`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.begin = time.time()
        self.ports = {name: free_port() for name in ("demo", "oom", "gpu")}
        self.server = Prometheus(directory / "prometheus", config=self._config())
        self.end = 0.0
        self.killed: list[dict[str, object]] = []
        """The alert of the OOM kill, as it fired."""

    def _config(self) -> dict[str, object]:
        copies = []
        for rules in sorted(RULES.glob("*.yml")):
            document = yaml.safe_load(rules.read_text())
            for one in document["groups"]:
                one["interval"] = "1s"
                for rule in one["rules"]:
                    # What has grown from one evaluation to the next, as of now: the runs are over before two minutes are.
                    rule["expr"] = (
                        rule["expr"].replace(_THIS, " offset 1s").replace(_ONE_BEFORE, " offset 2s")
                    )
            copy = self.directory / rules.name
            copy.write_text(yaml.safe_dump(document))
            copies.append(str(copy))
        scrapes = [
            {
                "job_name": name,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": f"{name}-1"}}],
            }
            for name, port in self.ports.items()
        ]
        return {
            # On a busy machine an answer may take its time; one that comes too late is not asked for again.
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": copies,
            "scrape_configs": scrapes,
        }

    def run_all(self, seconds: int = 6, scale: float = 0.3) -> None:
        """Runs the three at once, the demo and the one with GPUs for so long, and waits until their ends have been scraped and judged."""
        machine = Machine(self.directory / "nvml")
        _cards(machine)
        with group(OOM_LIMIT) as place:
            demo = self._start(
                "demo", ["-m", "otel_memwatch", "demo", "--seconds", str(seconds), "--scale", str(scale)]
            )
            oom = self._start("oom", ["-m", "otel_memwatch", "demo", "--oom"], enter=place.enter)
            may_end = self.directory / "gpu-may-end"
            gpu = self._start(
                "gpu", ["-c", GPU_PROGRAM, str(seconds), str(may_end)], environment=machine.environment()
            )
            self._hold_memory(machine)
            drawing = threading.Thread(target=_draw_power, args=(machine, gpu))
            drawing.start()
            # An alert on what is scraped goes with its target: it is looked at while it exists.
            self.killed = self.server.wait(lambda: self.alerts("MemwatchOomKill"), 60)
            for name in _SLOW:
                self.server.wait(lambda name=name: self.server.query(f"count_over_time({name}[2m]) > 2"), 60)
            may_end.touch()
            drawing.join(90)
            codes = {"oom": oom.wait(90), "demo": demo.wait(90), "gpu": gpu.wait(90)}
        assert codes == {"oom": -signal.SIGKILL, "demo": 0, "gpu": 0}, self._said()
        for name in self.ports:
            self.server.wait(
                lambda name=name: self.server.query(f'memwatch_run_exit_code{{job="{name}"}}[5m]')
            )
        # Ranges go by whole steps: the last one shall not leave out the last scrape.
        self.end = time.time() + 1

    def _start(self, name, arguments, enter=None, environment=None):
        options = [
            f"--prometheus=127.0.0.1:{self.ports[name]}", "--linger=30", "--no-plot", "--no-report",
            "--metrics=all", "--operation-metrics=histograms",
            f"--out={self.directory / name}", f"--textfile={self.directory / name}.prom",
        ]  # fmt: skip
        attributes = f"service.version=1.{len(name)},vcs.ref.head.name=main"
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "otel_memwatch", "wrap", *options, "--", sys.executable, *arguments],
                env={**os.environ, "OTEL_RESOURCE_ATTRIBUTES": attributes, **(environment or {})},
                cwd=ROOT,
                stdout=log,
                stderr=log,
                preexec_fn=enter,  # noqa: PLW1509 - one write to a file, before any thread is started
            )

    def _hold_memory(self, machine: Machine) -> None:
        """Reports to the driver that the program holds memory, as soon as its pid is known."""
        path = self.directory / "gpu" / "run.json"
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError, KeyError):
                pid = json.loads(path.read_text())["target"]["pid"]
                machine.also(
                    f"process 0 pid={pid} used={30 * GIB}", f"account 0 pid={pid} peak={31 * GIB} running=1"
                )
                return
            time.sleep(0.05)
        raise AssertionError("the run with GPUs did not start")

    def _said(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.directory.glob("*.log"))

    def alerts(self, name: str) -> list[dict[str, object]]:
        """The alerts of a rule that are active now."""
        groups = _get(self.server, "rules", {"type": "alert"})["groups"]
        rule = next(rule for one in groups for rule in one["rules"] if rule["name"] == name)
        assert rule["health"] in {"ok", "unknown"}, rule.get("lastError")
        return rule["alerts"]

    def values(self, expression: str) -> list[float]:
        """All finite values of an expression while the runs were there, as a panel would draw them."""
        return values(self.server, expression, self.begin, self.end)

    def label_values(self, selector: str, label: str) -> list[str]:
        """What a variable offers."""
        arguments = {"match[]": selector, "start": self.begin, "end": self.end}
        return _get(self.server, f"label/{label}/values", arguments)

    def close(self) -> None:
        """Ends the server."""
        self.server.close()


def values(server: Prometheus, expression: str, begin: float, end: float, step: str = "1s") -> list[float]:
    """All finite values of an expression within a time, one after each step."""
    arguments = {"query": expression, "start": begin, "end": end, "step": step}
    return [value for series in _get(server, "query_range", arguments) for value in _finite(series["values"])]


def backfilled(directory: Path, texts: list[str]) -> Prometheus:
    """A server whose data are made of OpenMetrics texts of recorded runs."""
    data = directory / "backfilled"
    for place, text in enumerate(texts):
        file = directory / f"{place}.om"
        file.write_text(text)
        command = [needed("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(file), str(data)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    return Prometheus(directory / "backfilled-server", data=data)


def _get(server: Prometheus, path, arguments):
    url = f"{server.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            data = json.load(response)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{arguments}: {error.read().decode()}") from None
    return data["result"] if isinstance(data, dict) and "result" in data else data


def _finite(points) -> list[float]:
    numbers = (float(text) for _, text in points)
    return [number for number in numbers if number == number and abs(number) != float("inf")]


def _cards(machine: Machine) -> None:
    figures = {
        "used": 50 * GIB, "reserved": GIB, "power": 300_000, "energy": 5_000_000, "temperature": 55, "throttle": 4,
        "corrected": 1, "uncorrected": 0, "gpu": 1, "memory": 2, "rx": 1000, "tx": 1000, "nvrx": 1000, "nvtx": 1000,
        "mig": 0, "accounting": 1,
    }  # fmt: skip
    machine.card(0, uuid=FIRST, **figures)
    machine.card(1, uuid=SECOND, **{**figures, "used": 79 * GIB, "gpu": 90})


def _draw_power(machine: Machine, run) -> None:
    """New samples of the driver's until the run is over."""
    for moment in range(200, 100_000, 100):
        if run.poll() is not None:
            return
        machine.without("sample")
        machine.card(0, energy=5_000_000 + 385 * moment)
        machine.also(f"sample 0 0 {moment} 350000", f"sample 0 0 {moment + 50} 420000")
        time.sleep(0.1)


def main() -> None:
    """Draw the previews of the dashboards that have data from these runs, as of shortly before the demo's end."""
    from dashboards import previews

    out = Path(previews.__file__).parent / "previews"
    with tempfile.TemporaryDirectory() as directory:
        runs = Monitored(Path(directory))
        try:
            runs.run_all(40, scale=1.0)
            ended = json.loads((runs.directory / "demo/run.json").read_text())["ended"]["wall"]
            for name in ("run", "fleet", "gpu", "operations"):
                run = "demo-1" if name == "run" else ".+"
                asked = previews.PreviewSource(runs.server.url, runs.begin, ended - 2.0, run)
                previews.draw(boards()[f"memwatch-{name}.json"], asked).savefig(
                    out / f"memwatch-{name}.png", dpi=80
                )
        finally:
            runs.close()


if __name__ == "__main__":
    main()
