"""Shares of a run's time without progress: the result of the stall ledger."""

from __future__ import annotations

from otel_memwatch.record.fields import number
from otel_memwatch.run.stall_curve import StallPeriod, between, parse
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARES = ("memory", "disk", "cpu", "contention")


class Stalls(NamedTuple):
    """Shares of a run's time without progress, and their reasons. Bytes; `None`: unknown."""

    memory: float | None = None
    """Share of the time in which the run read files again for lack of memory."""
    disk: float | None = None
    """Share of the time in which a task of the run's cgroup waited for storage, without `memory`."""
    cpu: float | None = None
    """Least share of the time for which a CPU limit stopped the run."""
    reread_bytes: int | None = None
    """File pages that were dropped at a limit and read again."""
    files_bytes: int | None = None
    """Distinct bytes of the files that were read."""
    short_bytes: int | None = None
    """Memory that was missing to keep these files."""
    cores_allowed: float | None = None
    """CPU limit, in processors."""
    unwritten_bytes: int | None = None
    """Most page cache that waited to be written to storage at a sample."""
    writes: float | None = None
    """Largest share of the time in which the run can have waited for it. Then `memory` is unknown: only the machine's pressure shows
    this wait. `None`: none is seen, or `memory` counts it."""
    contention: float | None = None
    """Least share of the time for which the run waited for processors that other programs used; 0 if a limit stopped it."""
    periods: tuple[StallPeriod, ...] = ()
    """Periods of the run with a stall."""

    def between(self, start: float, end: float) -> dict[str, float | None]:
        """Return the shares of `_SHARES` from start to end, in seconds of the run; `None`: unknown."""
        whole = self.memory, self.disk, self.cpu, self.contention
        shares = between(self.periods, start, end)
        return {
            name: None if known is None else share
            for name, known, share in zip(_SHARES, whole, shares, strict=True)
        }

    def by_resource(self) -> dict[str, float]:
        """Return the known shares by resource, as pressure names it: "memory", "io" and "cpu"."""
        shares = {"memory": self.memory, "io": self.disk, "cpu": self.cpu}
        return {resource: share for resource, share in shares.items() if share is not None}

    @property
    def largest(self) -> float | None:
        """Return the larger share of memory and CPU; `None`: neither is known. Waiting for storage is a job's work."""
        return max((share for share in (self.memory, self.cpu) if share is not None), default=None)

    def to_json(self) -> dict[str, object]:
        """Return the form of `run.json` and of the JSON report."""
        return {**self._asdict(), "periods": [list(period) for period in self.periods]}

    @classmethod
    def of(cls, written: Mapping[str, object]) -> Stalls:
        """Read the form of `run.json`; anything else than a number is unknown."""
        if not written:
            return cls()
        values = {name: number(written.get(name)) for name in cls._fields if name != "periods"}
        return cls(**{  # type: ignore[arg-type]
            name: int(value) if value is not None and name.endswith("_bytes") else value for name, value in values.items()
        }, periods=parse(written.get("periods")))  # fmt: skip
