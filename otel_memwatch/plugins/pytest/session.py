"""One session of pytest: which of its processes does what, and how the figures come together.

=============================  ========================================================================
process                        plugins
=============================  ========================================================================
pytest alone                   `Measuring`, `Recording`, `Gathering`
a worker of pytest-xdist       `Measuring`, `Recording`; figures travel in the reports of the tests
the controller of the workers  `Gathering`, and `Workers`, which hears of their ends
=============================  ========================================================================
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_memwatch.config import parse_share, parse_size
from otel_memwatch.plugins.pytest.figures import BaselineOptions
from otel_memwatch.plugins.pytest.gathering import Gathering
from otel_memwatch.plugins.pytest.limits import MemoryLimit
from otel_memwatch.plugins.pytest.measuring import Measuring
from otel_memwatch.plugins.pytest.recording import SessionRecord, default_directory
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.figures import TreeKey

_INPUT = "memwatch_directory"
"""What the controller tells a worker: where to record."""
_OUTPUT = "memwatch"
"""What a worker tells the controller at its end: `Recording.finish`."""


def register(config: pytest.Config) -> None:
    """Registers what this process has to do. Raises `pytest.UsageError` for options that cannot be used."""
    top, every, baseline = _rows(config), _limit(config), _baseline(config)
    if config.getoption("collectonly", default=False):
        return
    plugins = config.pluginmanager
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    directory = _path(config, "memwatch_out") or default_directory()
    gathering = None
    if worker is None:
        gathering = Gathering(top, _path(config, "memwatch_json"), baseline)
        if config.getoption("dist", default="no") != "no":
            plugins.register(Workers(gathering, directory), "memwatch-workers")
            plugins.register(gathering, "memwatch-gathering")
            return
    else:
        directory = Path(worker[_INPUT])
    record = SessionRecord(directory, aftermath=gathering is not None)
    plugins.register(Measuring(every, record, worker=worker is not None), "memwatch-measuring")
    plugins.register(Recording(config, record, gathering), "memwatch-recording")
    if gathering is not None:
        plugins.register(gathering, "memwatch-gathering")


def _value(config: pytest.Config, name: str) -> str | None:
    """An option, or its ini value; `None`: neither is given."""
    given: str | None = config.getoption(name)
    return given if given is not None else config.getini(name)


def _path(config: pytest.Config, name: str) -> Path | None:
    """A path that was given, absolute: tests may change the working directory."""
    given = _value(config, name)
    return Path(os.path.abspath(given)) if given else None


def _baseline(config: pytest.Config) -> BaselineOptions:
    base, fail = _value(config, "memwatch_compare"), _value(config, "memwatch_fail")
    if fail is not None and base is None:
        raise pytest.UsageError("--memwatch-fail wants --memwatch-compare: there is nothing to compare with")
    try:
        share = None if fail is None else parse_share(fail.strip().removeprefix("+"))
    except ValueError as error:
        raise pytest.UsageError(f"--memwatch-fail: {error}") from None
    if base is not None and not base.startswith("git:"):
        base = os.path.abspath(base)
        if not os.path.isfile(base):
            raise pytest.UsageError(f"--memwatch-compare: there is no file {base}")
    save, add = _path(config, "memwatch_save"), _path(config, "memwatch_add")
    if save is not None and add is not None:
        raise pytest.UsageError(
            "--memwatch-save makes a baseline anew, --memwatch-add keeps what it has: one of them"
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
    """Begins and ends the record of a process that runs tests, and tells at its end what only the record knows.

    Args:
        config: of pytest.
        record: of this process.
        gathering: where the figures come together; `None`: in another process.

    """

    def __init__(self, config: pytest.Config, record: SessionRecord, gathering: Gathering | None) -> None:
        self._config = config
        self._record = record
        self._gathering = gathering

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Starts recording. The monitor's words go to the terminal, not into what is captured of the tests."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        if capture is None:
            self._record.begin()
        else:
            with capture.global_and_fixture_disabled():
                self._record.begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Ends the record, and hands over what it says."""
        trees, problems = self.finish()
        if self._gathering is not None:
            self._gathering.add_record(trees, problems, "", self._record.directory)
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
        """The tree's peak in all operations of tests that were not alone, and what is missing."""
        return self._record.finish(), self._record.problems


class Workers:
    """What the controller of pytest-xdist hears of its workers.

    Args:
        gathering: where the figures come together.
        directory: of the run; each worker adds its name.

    """

    def __init__(self, gathering: Gathering, directory: Path) -> None:
        self._gathering = gathering
        self._directory = directory

    def _of_worker(self, node: Any) -> Path:
        return self._directory.with_name(f"{self._directory.name}-{node.gateway.id}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tells a worker where to record."""
        node.workerinput[_INPUT] = str(self._of_worker(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes over what a worker has left; of one that has died, nothing."""
        from otel_memwatch.model import Certainty, Peak

        output = getattr(node, "workeroutput", {}).get(_OUTPUT)
        if output is None:
            return
        trees = {
            (pid, identity): Peak(size, Certainty(certainty), low, high)
            for pid, identity, size, certainty, low, high in output["trees"]
        }
        directory = output["directory"]
        self._gathering.add_record(trees, output["problems"], node.gateway.id, directory and Path(directory))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: Any) -> None:
        """Says of the test in which a worker died what that had, and whether the OOM killer took it."""
        from otel_memwatch.plugins.pytest.aftermath import death_in, wait_for_end

        directory = self._of_worker(report.node)
        if not directory.is_dir():  # it joined a run around the session, or had to record elsewhere
            return
        self._gathering.add_record({}, [], report.node.gateway.id, directory)
        wait_for_end(directory)
        death = death_in(directory)
        if death is not None:
            report.longrepr = f"{report.longrepr}\nmemory: the worker {death.words}"
            self._gathering.add_death(death)
