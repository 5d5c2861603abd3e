"""Figures of a group for `check`, `compare` and `advise`: as one run, and as a row for each shared host."""

from __future__ import annotations

import json

from otel_memwatch.model import Certainty
from otel_memwatch.record.git_head import commit_of
from otel_memwatch.record.identity import STARTED_ONE_BY_ONE
from otel_memwatch.run.figures import (
    CPU,
    GPU,
    MEMORY,
    OPERATION,
    RANK,
    SECONDS,
    WRITTEN,
    Figure,
    RunFigures,
    conditions_of,
    figures_of,
    largest,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.index.indexed_run import IndexedRun
from otel_memwatch.wings.index.run_row import row_of

if TYPE_CHECKING:
    from otel_memwatch.wings.ranks.rank_group import RankGroup


def group_figures(group: RankGroup) -> RunFigures:
    """Return the figures of a group.

    Memory is for all ranks (`RankGroup.together`). Operations and GPUs have the maximum over the ranks. Other figures
    are sums.
    """
    of_ranks = [figures_of(rank.run, compared=False).figures for rank in group.numbered]
    found: dict[str, Figure] = {}
    basis = "all ranks at one instant" if len(group.together.hosts) == 1 else "sum of the hosts' own peaks"
    found[MEMORY] = Figure.of_peak(group.together.peak, basis=basis)
    for name in dict.fromkeys(name for figures in of_ranks for name in figures):
        known = [figures[name] for figures in of_ranks if name in figures]
        if name == MEMORY:
            found[RANK] = largest(known)
        elif name in (WRITTEN, CPU):
            if len(known) == len(of_ranks):
                found[name] = Figure.measured(sum(one.value for one in known))
        elif name == GPU or name.startswith(OPERATION.rstrip(":")):
            found[name] = largest(known)
    found[SECONDS] = Figure.measured(group.seconds)
    return RunFigures(
        found,
        conditions_of(group.numbered[0].run),
        group.started,
        group.name,
        tuple(group.command),
        commit=commit_of(group.numbered[0].run.info),
    )


def host_rows(group: RankGroup) -> list[IndexedRun]:
    """Return a row for each host, as if its ranks were one run, for advice on requests per host.

    Empty if a scheduler placed independent ranks on the hosts: then each rank has a separate request.
    """
    if group.launcher in STARTED_ONE_BY_ONE or not any(
        len(ranks) > 1 or ranks[0].rank is None for ranks in group.counted.values()
    ):
        return []
    rows = []
    for figures, ranks in zip(group.together.hosts, group.counted.values(), strict=True):
        members = [row_of(str(rank.run.path)) for rank in ranks]
        finite = figures.high != float("inf")
        cpus = [row.cpu for row in members if row.cpu is not None]
        bad = next((row for row in members if row.exit_code or row.signal or row.oom_kills), members[0])
        rows.append(
            members[0]._replace(
                id=f"{group.name} on {figures.host}",
                key=f"{members[0].key}, all {len(members)} of a host",
                name=None,
                tags_json=json.dumps({}),
                memory=int(figures.high if finite else figures.guess),
                low=int(figures.low),
                high=int(figures.high) if finite else None,
                certainty=Certainty.INTERVAL.value,
                cpu=sum(cpus) if len(cpus) == len(members) else None,
                seconds=max((row.seconds or 0.0 for row in members), default=None),
                exit_code=bad.exit_code,
                signal=bad.signal,
                oom_kills=max((row.oom_kills or 0 for row in members), default=None),
                reason=bad.reason,
                input_bytes=None,
                file_bytes=max((row.library_bytes for row in members), default=None),
            )
        )
    return rows
