"""Request and predictions of a run beside its use, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.record.run_info_schema import RunInfo
from otel_memwatch.reports.sections.asked import prediction, request
from otel_memwatch.run.recorded_run import RecordedRun
from otel_memwatch.run.results import Peaks
from otel_memwatch.run.stalls import Stalls
from otel_memwatch.truth.estimates import largest_sample

GIB = 1 << 30
SLURM = {"by": "Slurm", "memory_bytes": 64 * GIB, "cores": 16, "gpus": 4, "seconds": 14400}


def facts(section: Any, info: dict[str, Any], **more: Any) -> list[str]:
    """The facts that a section writes about a run of an hour with 8 GiB and 1.3 cores."""
    found: list[str] = []
    page = SimpleNamespace(fact=lambda label, words, tone="": found.append(f"{label}: {words}"))
    gpu = {"GPU-1": largest_sample(5 * GIB), "GPU-2": largest_sample(0)}
    fields: dict[str, Any] = {
        "fields": RunInfo.of(info), "limits": {}, "stalls": Stalls(), "seconds": 3600.0, "totals": {"cpu_seconds": 4680.0},
        "peaks": Peaks(tree=largest_sample(8 * GIB), gpu_tree=gpu), "settings": info.get("settings", {}), "state": "finished", **more,
    }  # fmt: skip
    run = SimpleNamespace(**fields)
    run.predicted, run.cores = RecordedRun.predicted.__get__(run), RecordedRun.cores.__get__(run)
    section(run, page)
    return found


@pytest.mark.parametrize(
    ("info", "more", "words"),
    [
        ({}, {}, []),
        ({}, {"limits": {"cgroup_bytes": 9 * GIB}}, []),  # the fact about the limit has it
        ({"asked": SLURM}, {}, ["asked: used memory 8.00 GiB of 64.00 GiB, 1.3 of 16 cores, 1 of 4 GPUs, 1 h 00 min of 4 h 00 min (Slurm request)"]),
        ({"asked": SLURM | {"gpus": None, "seconds": None}}, {"totals": {"cpu_seconds": None}}, ["asked: used memory 8.00 GiB of 64.00 GiB (Slurm request)"]),
        ({}, {"stalls": Stalls(cores_allowed=2.0)}, ["asked: used 1.3 of 2 cores"]),
        ({"asked": SLURM | {"gpus": 4}}, {"peaks": Peaks()}, ["asked: used 1.3 of 16 cores, 1 h 00 min of 4 h 00 min (Slurm request)"]),
    ],
)  # fmt: skip
def test_the_request_is_compared_with_the_use(
    info: dict[str, Any], more: dict[str, Any], words: list[str]
) -> None:
    assert facts(request, info, **more) == words


def test_each_prediction_is_beside_its_figure() -> None:
    settings = {"settings": {"predicted": ["seconds=30min", "memory=10GiB", "written=1GiB", "nonsense"]}}
    assert facts(prediction, settings) == [
        "predicted: memory 10.00 GiB, measured 8.00 GiB: 0.8 times the prediction",
        ": written to disks 1.00 GiB, not measured",
        ": duration 30 min 00 s, measured 1 h 00 min: 2 times the prediction",
    ]
    assert facts(prediction, {"settings": {"predicted": "memory=10GiB"}}) == []
