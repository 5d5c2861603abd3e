"""Start of a wrapped run."""

from __future__ import annotations

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run.wrap import _own_cgroup
from otel_memwatch.monitor.run_cgroup import own_cgroup, service_manager

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
