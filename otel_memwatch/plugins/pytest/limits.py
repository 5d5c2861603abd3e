"""What a test may take: its mark, checked before anything runs, and the verdict where its call has ended."""

from __future__ import annotations

import re

import pytest

from otel_memwatch.config import parse_size
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.plugins.pytest.figures import PhaseFigures


class MemoryLimit(NamedTuple):
    """One limit of a test."""

    kind: str
    """A key of `KINDS`."""
    bytes: int
    source: str
    """Where it stands, for the person who has to find it."""


KINDS = {
    "limit": "the process reached",
    "added": "the call added",
    "growth": "the call kept",
    "tree": "the process and its children reached",
}
"""The keywords of the mark, with the beginning of the sentence about a test that is beyond."""


def limits_of(item: pytest.Item, every: MemoryLimit | None) -> tuple[MemoryLimit, ...]:
    """The limits of a test; `every` holds where it has no limit of its process of its own.

    Raises `pytest.UsageError` for a mark that cannot be used.
    """
    found: dict[str, MemoryLimit] = {}
    # The closest mark comes first: that of a function before that of its class.
    for mark in item.iter_markers("memwatch"):
        where = f"@pytest.mark.memwatch of {item.nodeid}"
        unknown = sorted(set(mark.kwargs) - set(KINDS))
        if mark.args or unknown:
            what = repr(unknown[0]) if unknown else "a value without a name"
            raise pytest.UsageError(f"{where}: {what} is none of {', '.join(KINDS)}")
        for kind, text in mark.kwargs.items():
            if text is not None and kind not in found:
                try:
                    found[kind] = MemoryLimit(
                        kind, parse_size(str(text)), f"{kind}={text!r} of the mark memwatch"
                    )
                except ValueError as error:
                    raise pytest.UsageError(f"{where}: {kind}: {error}") from None
    if every is not None:
        found.setdefault("limit", every)
    if not item.config.pluginmanager.hasplugin("memray"):
        _add_limit_memory(item, found)
    return tuple(found.values())


def _add_limit_memory(item: pytest.Item, found: dict[str, MemoryLimit]) -> None:
    """The limit of pytest-memray's mark, whose MB are 1024 squared bytes."""
    mark = item.get_closest_marker("limit_memory")
    if mark is None or "added" in found:
        return
    text = mark.args[0] if mark.args else mark.kwargs.get("limit")
    try:
        binary = re.sub(r"(?<=[KMGT])(?=B\s*$)", "i", str(text).upper())
        found["added"] = MemoryLimit("added", parse_size(binary), f"limit_memory({text!r})")
    except ValueError as error:
        raise pytest.UsageError(f"@pytest.mark.limit_memory of {item.nodeid}: {error}") from None


class LimitVerdict(NamedTuple):
    """What is to be said of a limit that a test did not certainly keep."""

    limit: MemoryLimit
    beyond: bool
    """Certainly; false: cannot tell."""
    text: str


def judge(
    limits: tuple[MemoryLimit, ...], bounds: Mapping[str, tuple[int | None, int | None]]
) -> list[LimitVerdict]:
    """The limits that a test is beyond, or may be.

    A test is beyond a limit where its low end is, keeps it where its high end does, and else nobody can tell.

    Args:
        limits: of the test.
        bounds: lower and upper bound of its figure, for the kinds that are known; `None`: no such bound.

    """
    verdicts = []
    for limit in limits:
        if limit.kind not in bounds:
            continue
        low, high = bounds[limit.kind]
        if high is not None and high <= limit.bytes:
            continue
        beyond = low is not None and low > limit.bytes
        said = f"{KINDS[limit.kind]} {_between(low, high)}"
        verdicts.append(
            LimitVerdict(limit, beyond, f"{said}, and may have {size(limit.bytes)} ({limit.source})")
        )
    return verdicts


def _between(low: int | None, high: int | None) -> str:
    if low is None:
        return "an unknown size" if high is None else f"no more than {size(high)}"
    if high is None:
        return f"at least {size(low)}"
    return size(low) if size(low) == size(high) else f"{size(low)} to {size(high)}"


def bounds_of_call(call: PhaseFigures) -> dict[str, tuple[int | None, int | None]]:
    """Bounds of the figures that the process itself knows at the end of a call."""
    bounds: dict[str, tuple[int | None, int | None]] = {"limit": (call.low, call.high)}
    if call.start is not None:
        # The sizes at both ends come from the same counters as the peak, and are off by as much.
        error = call.error
        low = None if call.low is None else max(0, call.low - call.start - error)
        high = None if call.high is None else max(0, call.high - call.start + error)
        bounds["added"] = low, high
        if call.end is not None:
            kept = call.end - call.start
            bounds["growth"] = max(0, kept - 2 * error), max(0, kept + 2 * error)
    return bounds
