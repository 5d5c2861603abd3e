"""Memory curve as SVG, for browsers without scripts and for paper. Presentation attributes only, no style."""

from __future__ import annotations

from otel_memwatch.reports.pages.markup import escaped, tag
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import duration, peak_figure, size, size_scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import RecordedRun

WIDTH, HEIGHT = 960, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 28, 28
_PARTS = 480
"""Parts of the time axis; the largest value of each is drawn."""
_NEAR = 3.0
"""Largest ratio of limit to peak for which the limit is drawn; above it the curve would be flat."""
_INK, _SOFT, _LINE, _NEEDED, _LIMIT = "#1f2328", "#667079", "#d8dde2", "#00795c", "#c8500a"


def picture(run: RecordedRun, data: Mapping[str, Any]) -> str:
    """Return the picture, or a sentence if the record has no samples."""
    times = [value / 1000 for value in _values(data["buckets"]["ends"]) if value is not None]
    curves = data["memory"]
    if not times or not curves:
        return tag("p", "No samples were recorded, so there is no curve.", class_="more")
    curve = curves[0]
    values = [None if v is None else v * curve["high"]["unit"] for v in _values(curve["high"]["steps"])]
    seconds = data["seconds"] or 1.0
    peak, limit = run.peaks.tree, data["limit"]
    top = max(
        [value for value in values if value is not None] + ([peak.high or peak.bytes] if peak else []),
        default=0,
    )
    near = limit is not None and limit["bytes"] <= _NEAR * top
    if near:
        top = max(top, limit["bytes"])
    ticks, top = _ticks(top * 1.08 or 1024.0)
    across = WIDTH - _LEFT - _RIGHT
    up = HEIGHT - _TOP - _BOTTOM

    def x(time: float) -> str:
        return f"{_LEFT + across * min(1.0, max(0.0, time / seconds)):.1f}"

    def y(value: float) -> str:
        return f"{_TOP + up * (1 - value / top):.1f}"

    points = _largest(times, values, seconds)
    steps = "".join(f"{'L' if i else 'M'}{x(time)} {y(value)}" for i, (time, value) in enumerate(points))
    parts = []
    for value, label in ticks:
        parts.append(_path(f"M{_LEFT} {y(value)}H{WIDTH - _RIGHT}", _LINE))
        parts.append(_text(_LEFT - 8, float(y(value)) + 4, label, "end"))
    parts += [
        _text(_LEFT, HEIGHT - 8, "0 s", "start"),
        _text(WIDTH - _RIGHT, HEIGHT - 8, duration(seconds), "end"),
        _path(steps, _NEEDED, stroke_width="1.8", stroke_linejoin="round"),
    ]
    for start, end, *shares in data["stalls"]:
        width = max(1.0, float(x(end)) - float(x(start)))
        parts.append(
            f'<rect x="{x(start)}" y="{HEIGHT - _BOTTOM - 6}" width="{width:.1f}" height="6" fill="{_LIMIT}" '
            f'fill-opacity="{0.15 + 0.75 * max(shares):.2f}"/>'
        )
    if limit is not None and near:
        level, words = y(limit["bytes"]), f"limit {size(limit['bytes'])}"
        parts.append(_path(f"M{_LEFT} {level}H{WIDTH - _RIGHT}", _LIMIT, stroke_dasharray="6 4"))
        parts.append(_text(WIDTH - _RIGHT, float(level) - 5, words, "end", _LIMIT))
    if peak is not None and peak.at is not None:
        at, level = x(peak.at), y(peak.bytes)
        parts.append(tag("circle", "", cx=at, cy=level, r=4.5, fill="none", stroke=_INK, stroke_width=1.6))
        side, shift = ("end", -10) if peak.at > seconds / 2 else ("start", 10)
        parts.append(_text(float(at) + shift, float(level) - 6, f"peak {peak_figure(peak)}", side, _INK))
    parts.append(_text(_LEFT, 16, curve["label"], "start", _NEEDED))
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" font-family="system-ui, sans-serif" font-size="12" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _path(line: str, colour: str, **attributes: object) -> str:
    return tag("path", "", d=line, stroke=colour, fill="none", **attributes)


def _text(x: float, y: float, text: str, anchor: str, colour: str = _SOFT) -> str:
    return tag("text", escaped(text), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill=colour)


def _values(steps: Sequence[int | None]) -> list[int | None]:
    """Return the values from their differences: the inverse of `data.steps`."""
    level, found = 0, []
    for step in steps:
        if step is not None:
            level += step
        found.append(None if step is None else level)
    return found


def _largest(
    times: Sequence[float], values: Sequence[float | None], seconds: float
) -> Iterable[tuple[float, float]]:
    """Return time and value of the largest value of each part of the time axis."""
    largest: dict[int, tuple[float, float]] = {}
    for time, value in zip(times, values, strict=True):
        place = int(_PARTS * time / seconds)
        if value is not None and (place not in largest or value > largest[place][1]):
            largest[place] = time, value
    return largest.values()


def _ticks(top: float) -> tuple[list[tuple[float, str]], float]:
    """Return values and labels of the memory axis, and its upper end."""
    scale, unit = size_scale(top)
    span = top / scale
    step = next(
        s
        for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 256, 512, 1024)
        if span / s <= 5
    )
    number = int(span / step) + 1
    return [(i * step * scale, f"{i * step:g} {unit}") for i in range(number)], top
