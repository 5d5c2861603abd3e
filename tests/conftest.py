"""What every test needs of the process that runs them."""

from __future__ import annotations

import os
import signal
from typing import Any

import hypothesis
import pytest

# An example that waits for its processor is not a slow one: the machine is shared. With CI set hypothesis knows that itself.
hypothesis.settings.register_profile(
    "shared",
    hypothesis.settings.default,
    deadline=None,
    suppress_health_check=(hypothesis.HealthCheck.too_slow,),
)
hypothesis.settings.load_profile("shared")

# A command without compiled files takes three times as long to start, and the tests start thousands.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

TOGETHER = (
    "tests/contract/test_dashboards_data.py",
    "tests/contract/test_exports.py",
    "tests/contract/docs/test_exit_codes.py",
    "tests/contract/docs/test_site.py",
    "tests/contract/test_fleet_data.py",
    "tests/contract/test_release.py",
    "tests/e2e/test_compare.py",
    "tests/e2e/test_groups.py",
    "tests/e2e/test_page.py",
    "tests/e2e/test_secrets.py",
    "tests/e2e/test_telemetry.py::test_spans_of_a_node_program",
    "tests/e2e/test_upload.py",
)
"""Beginnings of the names of tests that share a run or a server that takes long: one worker runs them, one after the other."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Every test for itself to the next free worker, what stands in `TOGETHER` to one, those first.

    `--dist loadgroup` would do, but pytest-xdist 3.8 marks groups where pytest 9.2 no longer looks.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((beginning for beginning in TOGETHER if nodeid.startswith(beginning)), nodeid)

    return Together(config, log)


def pytest_configure() -> None:
    """Signals as a terminal's foreground job has them, also in the background of a script, under nohup or a CI runner.

    A signal that is ignored when a program starts stays ignored in all that it starts, and a shell cannot trap it:
    the programs under test would not be the ones that the tests describe.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGTERM,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
