"""Wait until a descriptor is readable."""

from __future__ import annotations

import math
import select

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_LONGEST = (2**31 - 1) // 1000
"""Seconds of the longest wait that poll(2) takes: 24 days."""


def readable(descriptors: Iterable[int], seconds: float | None) -> list[int]:
    """Wait for and return the descriptors that are readable or closed at the other end.

    Uses poll(), because select() rejects descriptors above 1023, which a program with a thousand open files may pass. A
    descriptor that is not open counts as readable; reading it shows the error.

    Args:
        descriptors: descriptors of pipes and processes; poll(2) of macOS does not support terminals.
        seconds: timeout, of at most 24 days; `None` waits for ever.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    wait = None if seconds is None else math.ceil(min(seconds, _LONGEST) * 1000)
    return [descriptor for descriptor, _ in poll.poll(wait)]
