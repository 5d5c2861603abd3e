"""Start of a wrapped run."""

from __future__ import annotations

import errno
import os

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run.supervise.start import Command
from otel_memwatch.monitor.run.wrap import _own_cgroup, _traceable
from otel_memwatch.monitor.run_cgroup import own_cgroup, service_manager
from otel_memwatch.runtime import system_calls

SETTINGS = {"cgroup": "auto", "limit": None}
ASK = "set Delegate=yes in the unit job.service"
ALONE = "start otel-memwatch as the only process of its unit, container or scope"


@pytest.mark.parametrize(
    ("refusal", "hint"),
    [
        (Unavailable("not delegated", "systemd-run"), ASK),
        (own_cgroup.UnusableDelegation("holds other processes", ALONE), ALONE),
    ],
)
def test_the_hint_names_the_first_obstacle(
    refusal: Unavailable, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit with Delegate=yes in which a shell runs beside us needs no Delegate=yes."""

    def refuse(**_: object) -> None:
        raise refusal

    def find() -> None:
        raise Unavailable("The command must stay in the cgroup job.service.", ASK)

    monkeypatch.setattr(own_cgroup.OwnCgroup, "create", refuse)
    monkeypatch.setattr(own_cgroup, "systemd_runs", lambda: True)
    monkeypatch.setattr(service_manager, "find", find)
    assert _own_cgroup(SETTINGS) == (None, None, hint)


def test_the_child_declares_its_parent_as_tracer_and_then_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(system_calls, "prctl", lambda *arguments: seen.append(arguments))
    _traceable(lambda: seen.append("entered"))()
    _traceable(None)()
    declared = (0x59616D61, os.getppid())
    assert seen == [declared, "entered", declared]


def test_a_directory_of_path_that_this_user_may_not_search_is_named() -> None:
    """A hint to make the file executable is wrong: it may not exist."""
    error = Command(["tool"], {}).failure(errno.EACCES, b"/root-only/bin/tool")
    assert str(error).rstrip(".") == "tool: this user may not search /root-only/bin"
    assert error.exit_code == 126
