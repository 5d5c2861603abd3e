"""Session of pytest: the plugins of each process, and the transfer of figures between processes.

- pytest without workers: `WorkerPlugin`, `Recording`, `ControllerPlugin`.
- A worker of pytest-xdist: `WorkerPlugin`, `Recording`. The tests' reports carry the figures.
- The controller of the workers: `ControllerPlugin`, and `XdistHooks`, which handles the ends of workers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_memwatch.config import OPTIONS, parse_share, parse_size
from otel_memwatch.monitor.run.run_directory import absolute, run_name
from otel_memwatch.plugins.pytest.controller_plugin import CARRIED, CarriedFigures, ControllerPlugin
from otel_memwatch.plugins.pytest.limits import MemoryLimit
from otel_memwatch.plugins.pytest.measured_test import BaselineOptions
from otel_memwatch.plugins.pytest.session_record import SessionRecord
from otel_memwatch.plugins.pytest.worker_plugin import WorkerPlugin
from otel_memwatch.record.format import RUNS_DIRECTORY
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.measured_test import TreeKey

_INPUT = "memwatch_directory"
"""Key of the controller's input to a worker: its run directory."""
_OUTPUT = "memwatch"
"""Key of a worker's output to the controller at its end: `Recording.finish`."""
_TREE = ("bytes", "certainty", "low", "high")
"""Fields of a tree's peak that a worker sends, in this order."""


def register(config: pytest.Config) -> None:
    """Register the plugins of this process. Raises `pytest.UsageError` for invalid options."""
    top, every, baseline = _rows(config), _limit(config), _baseline(config)
    if config.getoption("collectonly", default=False):
        return
    plugins = config.pluginmanager
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    runs = os.environ.get(OPTIONS["runs"].variable) or RUNS_DIRECTORY
    directory = _path(config, "memwatch_out") or Path(absolute(runs)) / run_name(["pytest"])
    controller = None
    if worker is None:
        controller = ControllerPlugin(top, _path(config, "memwatch_json"), baseline)
        plugins.register(CarriedFigures(controller), CARRIED)
        if config.getoption("dist", default="no") != "no":
            plugins.register(XdistHooks(controller, directory), "memwatch-xdist")
            plugins.register(controller, "memwatch-controller")
            return
    else:
        directory = Path(worker[_INPUT])
    record = SessionRecord(directory, crash_report=controller is not None)
    plugins.register(WorkerPlugin(every, record, controller), "memwatch-worker")
    plugins.register(Recording(config, record, controller), "memwatch-recording")
    if controller is not None:
        plugins.register(controller, "memwatch-controller")


def _value(config: pytest.Config, name: str) -> str | None:
    """Return an option or its ini value; `None` if neither is set."""
    given: str | None = config.getoption(name)
    return given if given is not None else config.getini(name)


def _path(config: pytest.Config, name: str) -> Path | None:
    """Return the path in an option as an absolute path, because tests may change the working directory."""
    given = _value(config, name)
    return Path(os.path.abspath(given)) if given else None


def _baseline(config: pytest.Config) -> BaselineOptions:
    base, fail = _value(config, "memwatch_compare"), _value(config, "memwatch_fail")
    if fail is not None and base is None:
        raise pytest.UsageError("--memwatch-fail requires --memwatch-compare")
    try:
        share = None if fail is None else parse_share(fail.strip().removeprefix("+"))
    except ValueError as error:
        raise pytest.UsageError(f"--memwatch-fail: {error}") from None
    if base is not None and not base.startswith("git:"):
        base = os.path.abspath(base)
        if not os.path.isfile(base):
            raise pytest.UsageError(f"--memwatch-compare: file not found: {base}")
    save, add = _path(config, "memwatch_save"), _path(config, "memwatch_add")
    if save is not None and add is not None:
        raise pytest.UsageError(
            "pass either --memwatch-save (new baseline) or --memwatch-add (extend a baseline), not both"
        )
    return BaselineOptions(save, add, base, share)


def _rows(config: pytest.Config) -> int:
    text = _value(config, "memwatch_top")
    if text is None:
        return 10
    if not (text.isascii() and text.isdecimal()):
        raise pytest.UsageError(f"--memwatch-top: {text!r} is not a number of rows")
    return int(text)


def _limit(config: pytest.Config) -> MemoryLimit | None:
    text = _value(config, "memwatch_limit")
    if text is None:
        return None
    try:
        return MemoryLimit("limit", parse_size(text), f"--memwatch-limit {text}")
    except ValueError as error:
        raise pytest.UsageError(f"--memwatch-limit: {error}") from None


class Recording:
    """Hooks that begin and end the record of a process that runs tests, and pass its results to the controller."""

    def __init__(
        self, config: pytest.Config, record: SessionRecord, controller: ControllerPlugin | None
    ) -> None:
        self._config = config
        self._record = record
        self._controller = controller

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Start recording. The monitor's messages go to the terminal, not into the tests' captured output."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        if capture is None:
            self._record.begin()
        else:
            with capture.global_and_fixture_disabled():
                self._record.begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End the record and pass on its results."""
        trees, problems = self.finish()
        if self._controller is not None:
            self._controller.add_record(trees, problems, "", self._record.directory)
        else:
            output = {
                "trees": [
                    (*key, peak.bytes, peak.certainty.value, peak.low, peak.high)
                    for key, peak in trees.items()
                ],
                "problems": problems,
                "directory": str(self._record.directory) if self._record.directory else None,
            }
            self._config.workeroutput[_OUTPUT] = output  # type: ignore[attr-defined]

    def finish(self) -> tuple[dict[TreeKey, Peak], list[str]]:
        """Return the tree's peak for all operations of tests with children, and the record's problems."""
        return self._record.finish(), self._record.problems


class XdistHooks:
    """Hooks of the pytest-xdist controller about its workers.

    Args:
        controller: the plugin that collects the figures.
        directory: run directory; each worker appends its name.

    """

    def __init__(self, controller: ControllerPlugin, directory: Path) -> None:
        self._controller = controller
        self._directory = directory

    def _of_worker(self, node: Any) -> Path:
        return self._directory.with_name(f"{self._directory.name}-{node.gateway.id}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass a worker its run directory."""
        node.workerinput[_INPUT] = str(self._of_worker(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the results of a worker; a dead worker has none."""
        from otel_memwatch.model import Peak

        output = getattr(node, "workeroutput", {}).get(_OUTPUT)
        if output is None:
            return
        trees = {
            (pid, identity): peak
            for pid, identity, *figure in output["trees"]
            if (peak := Peak.from_json(dict(zip(_TREE, figure, strict=True)))) is not None
        }
        directory = output["directory"]
        self._controller.add_record(trees, output["problems"], node.gateway.id, directory and Path(directory))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: Any) -> None:
        """Add to a crashed test's report its memory and whether the OOM killer killed its worker."""
        from otel_memwatch.plugins.pytest.crash_report import death_in, wait_for_end

        directory = self._of_worker(report.node)
        if not directory.is_dir():  # the worker joined an enclosing run or recorded elsewhere
            return
        self._controller.add_record({}, [], report.node.gateway.id, directory)
        wait_for_end(directory)
        death = death_in(directory)
        if death is not None:
            report.longrepr = f"{report.longrepr}\nmemory: the worker {death.words}"
            self._controller.add_death(death)
