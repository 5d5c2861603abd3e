"""Curve drawn with characters. Each column shows the largest value of its stretch of time."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import size

if TYPE_CHECKING:
    from collections.abc import Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"
_LETTERS = " .:-=+*#"
_NEAR = 3.0
"""Largest ratio of limit to largest value for which the limit sets the scale; above it the curve would be flat."""
_LABEL = 10


def curve(
    points: Sequence[tuple[float, int]],
    seconds: float,
    limit: int | None,
    width: int,
    height: int,
    *,
    blocks: bool,
) -> list[str]:
    """Return the lines of the curve, with the scale to the left; none without points.

    Args:
        points: seconds and bytes, by time.
        seconds: time at the right end.
        limit: memory limit; it sets the scale if it is near the curve.
        width: number of columns, including the scale.
        height: number of lines.
        blocks: true if the terminal shows block characters; else use ASCII.

    """
    columns = width - _LABEL - 1
    if not points or columns < 8 or height < 2:
        return []
    # The largest value of each column. A stretch longer than a column fills several.
    heights: list[int | None] = [None] * columns
    seconds = max(seconds, 1e-9)
    for index, (begin, value) in enumerate(points):
        end = points[index + 1][0] if index + 1 < len(points) else seconds
        first = min(columns - 1, int(begin / seconds * columns))
        last = min(columns - 1, max(first, int(end / seconds * columns) - 1))
        for column in range(first, last + 1):
            heights[column] = max(value, heights[column] or 0)
    most = max(value for _, value in points)
    top = limit if limit is not None and most > 0 and limit <= _NEAR * most else most
    levels = _BLOCKS if blocks else _LETTERS
    steps = len(levels) - 1
    lines = []
    for row in range(height - 1, -1, -1):
        text = ""
        for most_here in heights:
            filled = 0.0 if most_here is None or top <= 0 else most_here / top * height - row
            text += levels[max(0, min(steps, round(filled * steps)))]
        label = size(top) if row == height - 1 else "0" if row == 0 else ""
        lines.append(f"{label:>{_LABEL}} {text}".rstrip())
    return lines
