"""The lines of an operation's two boundaries, as `record/format.py` describes them."""

from __future__ import annotations

from otel_memwatch.in_target.operations.counters import NOTHING, io_text, io_totals
from otel_memwatch.in_target.operations.text import attributes_text, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from otel_memwatch.in_target.operations.boundary import Used
    from otel_memwatch.in_target.operations.counters import Reading
    from otel_memwatch.in_target.operations.opened import Closing, Opened

END = b"}\n"
NOTHING_MORE = NOTHING + END
"""The rest of a closing's line where there was no I/O."""


def opening_more(attributes: Mapping[str, object] | None, exported: bool) -> bytes:
    """What the lines of few openings have behind the others' fields, and the end of the line.

    `exported`: the program sends the span itself.
    """
    if not attributes and not exported:
        return END
    text = f',"attributes":{attributes_text(attributes)}' if attributes else ""
    return (text + (',"exported":true' if exported else "")).encode() + END


def opening_line(opened: Opened, name: str, parent_span: str | None, thread: int, more: bytes) -> bytes:
    """An operation has begun; `more`: the rest of the line."""
    segment, rss = opened.first[0], opened.first[1]
    parent = "null" if parent_span is None else f'"{parent_span}"'
    return (
        f'{{"open":{opened.id},"time":{opened.time:.6f},"name":{quote(name)},"trace":"{opened.trace}",'
        f'"span":"{opened.span}","parent":{parent},"thread":{thread},"rss":{"null" if rss is None else rss},'
        f'"segment":{"null" if segment is None else segment}'
    ).encode() + more


def closing_line(
    opened: Opened, closing: Closing, error: str | None, attributes: Mapping[str, object] | None
) -> bytes:
    """An operation has ended."""
    before, after, gpu = closing[4:]
    rest = NOTHING if before is after else io_text(io_totals(before, after))
    if gpu:
        rest += f',"gpu":{_json(gpu)}'.encode()
    if attributes:
        rest += f',"attributes":{attributes_text(attributes)}'.encode()
    return _figures(opened, closing, error) + rest + END


def closing_more(before: Reading, after: Reading) -> bytes:
    """What the line of a closing has behind the boundary's figures, and its end: neither GPU nor attributes."""
    return NOTHING_MORE if before is after else io_text(io_totals(before, after)) + END


def _figures(opened: Opened, closing: Closing, error: str | None) -> bytes:
    """The fields of every closing but I/O."""
    status = '"ok","error":null' if error is None else f'"error","error":{quote(error)}'
    now, _, (_, _, first, _), (segment, rss, used, _), _, _, _ = closing
    peak, low, high, certainty = closing[1]
    if first is None or used is None:
        cpu = '"cpu_user":null,"cpu_system":null,"minor_faults":null,"major_faults":null'
    else:
        user, system, minor, major = _used(first, used, closing)
        cpu = f'"cpu_user":{user:.6f},"cpu_system":{system:.6f},"minor_faults":{minor},"major_faults":{major}'
    return (
        f'{{"close":{opened.id},"time":{now:.6f},"status":{status},"rss":{"null" if rss is None else rss},'
        f'"segment":{"null" if segment is None else segment},"peak":{"null" if peak is None else peak},'
        f'"low":{"null" if low is None else low},"high":{"null" if high is None else high},'
        f'"certainty":"{certainty}",{cpu}'
    ).encode()


def _used(first: Used, last: Used, closing: Closing) -> Used:
    """What was used between the boundaries, by reaped children too."""
    user, system, minor, major = (
        last[0] - first[0],
        last[1] - first[1],
        last[2] - first[2],
        last[3] - first[3],
    )
    old, new = closing[4].children, closing[5].children
    if old is new or old is None or new is None:
        return user, system, minor, major
    return user + new[0] - old[0], system + new[1] - old[1], minor + new[2] - old[2], major + new[3] - old[3]


def _json(value: Mapping[str, Any]) -> str:
    from json import dumps  # only with a GPU allocator, which has imported it long ago

    return dumps(value, default=str, separators=(",", ":"))
