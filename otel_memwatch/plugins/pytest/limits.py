"""Memory limits of tests: parse marks before anything runs, and judge each call at its end."""

from __future__ import annotations

import re

import pytest

from otel_memwatch.config import parse_size
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import size, size_range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.plugins.pytest.measured_test import PhaseFigures


class MemoryLimit(NamedTuple):
    """One limit of a test."""

    kind: str
    """A key of `KINDS`."""
    bytes: int
    source: str
    """Place that sets the limit, as text for users."""


KINDS = {
    "limit": "process reached",
    "added": "added",
    "growth": "kept",
    "tree": "process and children reached",
}
"""Keywords of the mark, each with the words before the measured size in a verdict."""


def limits_of(item: pytest.Item, every: MemoryLimit | None) -> tuple[MemoryLimit, ...]:
    """Return the limits of a test; `every` is the default for the limit of its process.

    Raises `pytest.UsageError` for an invalid mark.
    """
    found: dict[str, MemoryLimit] = {}
    # The closest mark comes first: a function's before its class's.
    for mark in item.iter_markers("memwatch"):
        where = f"@pytest.mark.memwatch of {item.nodeid}"
        unknown = sorted(set(mark.kwargs) - set(KINDS))
        if mark.args or unknown:
            problem = f"unknown argument {unknown[0]!r}" if unknown else "positional argument"
            raise pytest.UsageError(f"{where}: {problem} (use {', '.join(f'{kind}=' for kind in KINDS)})")
        for kind, text in mark.kwargs.items():
            if text is not None and kind not in found:
                try:
                    found[kind] = MemoryLimit(
                        kind, parse_size(str(text)), f"{kind}={text!r} in mark memwatch"
                    )
                except ValueError as error:
                    raise pytest.UsageError(f"{where}: {kind}: {error}") from None
    if every is not None:
        found.setdefault("limit", every)
    of_memray = item.get_closest_marker("limit_memory")
    if of_memray is not None and "added" not in found and not item.config.pluginmanager.hasplugin("memray"):
        text = of_memray.args[0] if of_memray.args else of_memray.kwargs.get("limit")
        # The MB of pytest-memray is 1024 * 1024 bytes.
        binary = re.sub(r"(?<=[KMGT])(?=B\s*$)", "i", str(text).upper())
        try:
            found["added"] = MemoryLimit("added", parse_size(binary), f"limit_memory({text!r})")
        except ValueError as error:
            raise pytest.UsageError(f"@pytest.mark.limit_memory of {item.nodeid}: {error}") from None
    return tuple(found.values())


class LimitVerdict(NamedTuple):
    """Result for a limit that a test exceeded or may have exceeded."""

    limit: MemoryLimit
    beyond: bool
    """True if the test certainly exceeded the limit, false if inconclusive."""
    text: str


def judge(
    limits: tuple[MemoryLimit, ...], bounds: Mapping[str, tuple[int | None, int | None]]
) -> list[LimitVerdict]:
    """Return verdicts for the limits that a test exceeded or may have exceeded.

    A test exceeds a limit if its lower bound does, and keeps it if its upper bound does. Otherwise the result is
    inconclusive.

    Args:
        limits: limits of the test.
        bounds: lower and upper bound of each measured kind; `None` means no such bound.

    """
    verdicts = []
    for limit in limits:
        if limit.kind not in bounds:
            continue
        low, high = bounds[limit.kind]
        if high is not None and high <= limit.bytes:
            continue
        beyond = low is not None and low > limit.bytes
        if low is None:
            measured = "an unknown size" if high is None else f"at most {size(high)}"
        elif high is None:
            measured = f"at least {size(low)}"
        else:
            measured = size_range(low, high, "-")
        words = f"{KINDS[limit.kind]} {measured}; limit {size(limit.bytes)} ({limit.source})"
        verdicts.append(LimitVerdict(limit, beyond, words))
    return verdicts


def bounds_of_call(call: PhaseFigures) -> dict[str, tuple[int | None, int | None]]:
    """Return bounds of the figures that the process itself measures at the end of a call."""
    bounds: dict[str, tuple[int | None, int | None]] = {"limit": (call.low, call.high)}
    if call.start is not None:
        # The sizes at start and end come from the same counters as the peak and have the same error.
        error = call.error
        low = None if call.low is None else max(0, call.low - call.start - error)
        high = None if call.high is None else max(0, call.high - call.start + error)
        bounds["added"] = low, high
        if call.end is not None:
            kept = call.end - call.start
            bounds["growth"] = max(0, kept - 2 * error), max(0, kept + 2 * error)
    return bounds
