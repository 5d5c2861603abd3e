"""Figures of a group as JSON: a contract with other programs, schema 1.

Fields may be added; none is removed. Bytes and seconds; `null` is "unknown".

* `memory.together`: on one host the peak of all runs at one instant. On several hosts the sum of the hosts' peaks,
  named in `how`; `at` is null.
* `clocks.reference`: "one machine", or "wall clocks" if there are several hosts. The difference between wall clocks is not
  measured, so `error` is null.
"""

from __future__ import annotations

import math

from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.wings.ranks.rank_group import Rank, RankGroup

SCHEMA = 1


def text(group: RankGroup) -> str:
    """Return the document as indented JSON in ASCII."""
    return strict_json.dumps(document(group), indent=2, ensure_ascii=True) + "\n"


def document(group: RankGroup) -> dict[str, Any]:
    """Return the document as a dictionary, with keys in the order of the contract."""
    together, largest, median = group.together, group.by_memory(), group.median
    alone = len(together.hosts) == 1
    error = 0.0 if alone else None
    death = group.first_death
    return {
        "schema": SCHEMA,
        "group": {
            "id": group.name,
            "names": [group.name, *group.more],
            "launcher": group.launcher or None,
            "size": group.size,
            "ranks": len(group.numbered),
            "hosts": list(group.hosts),
            "command": list(group.command),
            "started": round(group.started, 3),
            "seconds": round(group.seconds, 3),
            "state": group.state,
        },
        "memory": {
            "together": together.peak.to_json(),
            "largest": None if not largest else _figure(*largest[0]),
            "smallest": None if not largest else _figure(*largest[-1]),
            "median": median,
            "skew": round(largest[0][1] / median, 4) if largest and median else None,
        },
        "clocks": {
            "reference": "one machine" if alone else "wall clocks",
            "error": error,
            "hosts": [{"clock": clock, "error": error} for clock in group.counted],
        },
        "hosts": [
            {
                "host": host.host,
                "runs": host.runs,
                "low": int(host.low),
                "high": None if math.isinf(host.high) else math.ceil(host.high),
                "estimate": int(host.guess),
            }
            for host in together.hosts
        ],
        "ranks": [_rank(rank) for rank in group.ranks],
        "missing": list(group.missing),
        "earlier": [_rank(rank) for rank in group.earlier],
        "first_death": None
        if death is None
        else {
            "rank": death.rank.rank,
            "host": death.rank.host,
            "at": round(death.at, 3),
            "reason": death.rank.run.ending.reason,
            "operation": death.operation,
            "perhaps": [rank.rank for rank in death.others],
        },
    }


def _figure(rank: Rank, value: int) -> dict[str, Any]:
    peak = rank.peak
    return {
        "rank": rank.rank,
        "host": rank.host,
        "bytes": value,
        "operation": None if peak is None else peak.operation,
    }


def _rank(rank: Rank) -> dict[str, Any]:
    run, ending = rank.run, rank.run.ending
    return {
        "rank": rank.rank,
        "local_rank": rank.local_rank,
        "host": rank.host,
        "id": run.id,
        "path": str(run.path),
        "state": run.state,
        "inside": rank.inside,
        "started": round(run.started_wall, 3),
        "seconds": round(run.seconds, 3),
        "ended": {
            "exit_code": ending.exit_code,
            "signal": ending.signal,
            "oom_kills": ending.oom_kills,
            "reason": ending.reason,
        },
        "peaks": run.peaks.to_json(),
        "totals": {"cpu_seconds": run.totals.get("cpu_seconds")},
    }
