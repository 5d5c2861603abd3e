"""One module for each dashboard, with `build()`."""

from __future__ import annotations

from dashboards.boards import ci, cost, fleet, gpu, groups, operations, run
from dashboards.panels import Json


def boards() -> dict[str, Json]:
    """Every dashboard by the name of its file."""
    return {
        "memwatch-run.json": run.build(),
        "memwatch-fleet.json": fleet.build(),
        "memwatch-ci.json": ci.build(),
        "memwatch-cost.json": cost.build(),
        "memwatch-groups.json": groups.build(),
        "memwatch-gpu.json": gpu.build(),
        "memwatch-operations.json": operations.build(),
    }
