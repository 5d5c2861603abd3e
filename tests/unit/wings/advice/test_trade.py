"""The search for the smallest limit with full speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.errors import RunError
from otel_memwatch.record.format import TRADE_FILE, is_run_file
from otel_memwatch.wings.advice import trade
from otel_memwatch.wings.advice.advice import advise, job_of
from otel_memwatch.wings.advice.bisection import Knee, Trial, bisect
from otel_memwatch.wings.advice.measured import keep, with_measured
from otel_memwatch.wings.advice.trade import _verdict, drop, files_of
from tests.unit.wings.advice.test_advice import MIB, row


@pytest.mark.parametrize("knee", [9, 10, 60, 104, 262, 295, 296, 400, 1100])
def test_the_knee_is_found_in_few_runs(knee: int) -> None:
    tried: list[int] = []

    def suffices(limit: int) -> bool:
        tried.append(limit)
        return limit >= knee

    found = bisect(10, 296, suffices)
    assert 2 + 3 * len(tried) <= 26  # as the help of --trade says
    assert len(set(tried)) == len(tried)
    assert found.enough is not None
    assert found.enough >= knee
    if found.less is None:
        assert found.enough == 10
    else:
        assert found.less < knee
        assert found.enough <= 1.07 * found.less + 1


def test_no_limit_may_suffice() -> None:
    assert bisect(10, 100, lambda _: False) == Knee(None, 400)


@pytest.mark.parametrize(
    ("trial", "verdict"),
    [
        (Trial(0, None), "did not start"),
        (Trial(100, row(50, seconds=10.0)), "full speed"),
        (Trial(100, row(50, seconds=10.5)), "full speed"),
        (Trial(100, row(50, seconds=14.0)), "slow"),
        (Trial(100, row(50, seconds=16.0), contention=0.4), "full speed"),
        (Trial(100, row(50, seconds=16.0, read=99 * MIB), contention=0.4), "slow"),  # not the quickest
        (Trial(100, row(50, seconds=14.0, own_cgroup=True, cgroup=70 * MIB, limit=100 * MIB)), "full speed"),
        (Trial(100, row(50, seconds=14.0, own_cgroup=True, cgroup=99 * MIB, limit=100 * MIB)), "slow"),
        (
            Trial(100, row(50, seconds=14.0, read=MIB)),
            "full speed",
        ),  # neither reading nor computing shows a loss
        (Trial(100, row(50, seconds=14.0, read=99 * MIB)), "slow"),
        (Trial(100, row(50, seconds=14.0, read=MIB, written=99 * MIB)), "slow"),
        (Trial(100, row(50, seconds=14.0, read=MIB, written=99 * MIB), pressure=0.5), "full speed"),
        (Trial(100, row(50, seconds=14.0, read=MIB, written=99 * MIB), pressure=1.0), "slow"),
        (Trial(100, row(50, seconds=14.0, read=MIB, cpu=160.0)), "slow"),
        (Trial(100, row(50, seconds=10.0, starved=0.07)), "slow"),
        (Trial(100, row(50, seconds=11.0, read=60 * MIB), disk_rate=50 * MIB), "slow"),  # 59 MiB take 1.2 s
        (
            Trial(100, row(50, seconds=10.0, read=60 * MIB), disk_rate=50 * MIB),
            "full speed",
        ),  # while it computed
        (Trial(100, row(50, seconds=14.0, read=20 * MIB), disk_rate=50 * MIB), "full speed"),
        (Trial(100, row(50, seconds=10.0, starved=0.5)), "slow"),  # a program that runs for a fixed time
        (Trial(100, row(50, seconds=40.0), hung=True), "hangs"),
        (Trial(100, row(50, seconds=1.0, oom_kills=1)), "killed"),
        (Trial(100, row(50, seconds=10.0, exit_code=3, reason="exit code 3")), "fails: exit code 3"),
    ],
)
def test_a_limit_suffices_if_the_job_ends_as_usual_and_as_quickly(trial: Trial, verdict: str) -> None:
    assert _verdict(trial, [Trial(0, row(50, seconds=10.0, read=MIB)), trial]) == verdict


def test_a_limit_with_files_of_another_program_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cold, warm = (
        row(50, seconds=10.0, read=read * MIB, command_json='["true"]', mode="wrap") for read in (90, 9)
    )
    starved = cold._replace(starved=0.9)
    at_limits = iter([cold, warm, starved])  # the request, then the least limit twice
    monkeypatch.setattr(
        trade,
        "_tried",
        lambda row, limit, files, before: Trial(limit, next(at_limits, starved) if limit else cold),
    )
    (advice,) = advise([cold], by=job_of)
    lines = list(trade.trade(advice, cold))
    assert [line for line in lines if "52 MiB" in line and "full speed" not in line]


@pytest.mark.parametrize("seconds", [10.4, 20.0])
def test_a_longer_run_at_full_speed_is_explained(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Three of 3.0 s beside one of 1.45 s without a limit were "full speed" without a word."""
    alone = row(50, seconds=10.0, read=MIB, command_json='["true"]', mode="wrap")
    monkeypatch.setattr(
        trade,
        "_tried",
        lambda row, limit, files, before: Trial(limit, alone._replace(seconds=seconds) if limit else alone),
    )
    (advice,) = advise([alone], by=job_of)
    lines = list(trade.trade(advice, alone))
    assert any("other programs made runs longer" in line for line in lines) is (seconds > 15)


def test_a_user_who_may_not_limit_gets_no_knee(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three refusals, and "176 MiB does not suffice", were the answer."""
    monkeypatch.setattr(
        trade, "_tried", lambda row, limit, files, before: Trial(limit, None if limit else row)
    )
    measured = row(100, command_json='["true"]', mode="wrap")
    (advice,) = advise([measured], by=job_of)
    with pytest.raises(RunError, match="did not start the command under a limit of 112 MiB"):
        list(trade.trade(advice, measured))


def test_files_of_a_process_are_those_that_it_maps_or_has_open(tmp_path: Path) -> None:
    import os

    opened = tmp_path / "data"
    opened.write_bytes(b"x" * 10000)
    with opened.open("rb"):
        found = files_of(os.getpid())
    assert str(opened) in found
    assert any("python" in path or ".so" in path for path in found)
    drop({str(opened), str(tmp_path / "gone")})
    assert opened.read_bytes() == b"x" * 10000
    assert files_of(1 << 30) == set()


def test_the_next_advice_uses_a_measured_knee(tmp_path: Path) -> None:
    measured = row(100, path=str(tmp_path))
    (advice,) = advise([measured], by=job_of)
    assert with_measured(advice, [measured], 0) == advice
    keep(measured, Knee(300, 280), 8)
    newer = row(100, path=str(tmp_path / "newer"))
    found = with_measured(advice, [measured, newer], 25 * MIB)
    assert found.memory == found.full_speed == 325 * MIB
    assert found.minimum == advice.minimum
    assert found.notes[-1] == "full speed was measured: 300 MiB suffice (8 runs of --trade)"
    keep(measured, Knee(40, None), 8)
    assert with_measured(advice, [measured], 0).memory == advice.minimum
    (tmp_path / TRADE_FILE).write_text("[")
    assert with_measured(advice, [measured], 0) == advice
    assert is_run_file(TRADE_FILE)
