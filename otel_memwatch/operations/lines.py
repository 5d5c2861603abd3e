"""The lines of an operation's two boundaries, as `record/format.py` describes them."""

from __future__ import annotations

from otel_memwatch.operations.counters import NOTHING, io_text, io_totals
from otel_memwatch.operations.text import attributes_text, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from otel_memwatch.operations.opened import Closing, Opened
    from otel_memwatch.operations.watermark import Moment


def opening_line(
    opened: Opened, name: str, parent_span: str | None, thread: int, attributes: Mapping[str, object] | None
) -> bytes:
    """An operation has begun; without the end of the line, before which more fields may come."""
    segment, rss = opened.first[:2]
    parent = "null" if parent_span is None else f'"{parent_span}"'
    line = (
        f'{{"open":{opened.id},"time":{opened.time:.6f},"name":{quote(name)},"trace":"{opened.trace}",'
        f'"span":"{opened.span}","parent":{parent},"thread":{thread},"rss":{"null" if rss is None else rss},'
        f'"segment":{"null" if segment is None else segment}'
    )
    if attributes:
        line += f',"attributes":{attributes_text(attributes)}'
    return line.encode()


def closing_line(
    opened: Opened,
    last: Moment,
    closing: Closing,
    error: str | None,
    attributes: Mapping[str, object] | None,
) -> bytes:
    """An operation has ended."""
    _, peak, _, rss, before, after, gpu = closing
    more = NOTHING if before is after else io_text(io_totals(before, after))
    if gpu:
        more += f',"gpu":{_json(gpu)}'.encode()
    if attributes:
        more += f',"attributes":{attributes_text(attributes)}'.encode()
    if error is None and peak[3] == "exact" and rss is not None:
        return _good(opened, last, closing, more)
    return _any(opened, last, closing, error) + more + b"}\n"


def _good(opened: Opened, last: Moment, closing: Closing, more: bytes) -> bytes:
    """The same as `_any` and `more`, in half of the time, where there is no error and nothing is unknown."""
    now, peak, _, _, before, after, _ = closing
    segment, rss, usage, _ = last
    first = opened.first[2]
    user, system = usage[0] - first[0], usage[1] - first[1]
    minor, major = usage[6] - first[6], usage[7] - first[7]
    if before.children is not after.children:
        user, system, minor, major = _used(first, usage, closing)
    return (
        b'{"close":%d,"time":%.6f,"status":"ok","error":null,"rss":%d,"segment":%d,"peak":%d,"low":%d,"high":%d,'
        b'"certainty":"exact","cpu_user":%.6f,"cpu_system":%.6f,"minor_faults":%d,"major_faults":%d%b}\n'
        % (opened.id, now, rss, segment, peak[0], peak[1], peak[2], user, system, minor, major, more)  # type: ignore[str-format]
    )


def _any(opened: Opened, last: Moment, closing: Closing, error: str | None) -> bytes:
    """The fields of every closing but I/O."""
    status = '"ok","error":null' if error is None else f'"error","error":{quote(error)}'
    segment, rss, usage, _ = last
    now = closing[0]
    peak, low, high, certainty = closing[1]
    if opened.first[2] is None or usage is None:
        cpu = '"cpu_user":null,"cpu_system":null,"minor_faults":null,"major_faults":null'
    else:
        user, system, minor, major = _used(opened.first[2], usage, closing)
        cpu = f'"cpu_user":{user:.6f},"cpu_system":{system:.6f},"minor_faults":{minor},"major_faults":{major}'
    return (
        f'{{"close":{opened.id},"time":{now:.6f},"status":{status},"rss":{"null" if rss is None else rss},'
        f'"segment":{"null" if segment is None else segment},"peak":{"null" if peak is None else peak},'
        f'"low":{"null" if low is None else low},"high":{"null" if high is None else high},'
        f'"certainty":"{certainty}",{cpu}'
    ).encode()


def _used(first: Any, usage: Any, closing: Closing) -> tuple[float, float, int, int]:
    """CPU time (user, system) and faults (minor, major) between the boundaries, those of reaped children included."""
    user, system = usage[0] - first[0], usage[1] - first[1]
    minor, major = usage[6] - first[6], usage[7] - first[7]
    old, new = closing[4].children, closing[5].children
    if old is new or old is None:
        return user, system, minor, major
    return user + new[0] - old[0], system + new[1] - old[1], minor + new[6] - old[6], major + new[7] - old[7]


def _json(value: Mapping[str, Any]) -> str:
    from json import dumps  # only with a GPU allocator, which has imported it long ago

    return dumps(value, default=str, separators=(",", ":"))
