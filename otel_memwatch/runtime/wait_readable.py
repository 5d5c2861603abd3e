"""Waiting until something can be read."""

from __future__ import annotations

import math
import select

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def readable(descriptors: Iterable[int], seconds: float | None) -> list[int]:
    """Those of the descriptors that can be read, or whose other end is closed, as soon as there is one.

    Whatever their numbers: select(2) knows none above 1023, and a program with a thousand open files gives such to its pipes.
    One that is not open counts as one that can be read: reading it tells.

    Args:
        descriptors: of pipes and processes; poll(2) of macOS does not know terminals.
        seconds: to wait at most; `None`: for ever.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if seconds is None else math.ceil(seconds * 1000))]
