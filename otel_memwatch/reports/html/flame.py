"""Flame graph of the captured stacks, as SVG without a script.

Width is growth: the bytes by which the process had grown when the stack was captured. The outermost call is at the top.
Each call can be reached with the tab key, and has its name and share as label and tooltip.
"""

from __future__ import annotations

from otel_memwatch.reports.pages.markup import escaped, tag
from otel_memwatch.run.stacks import busiest, frame_name, is_library, is_snapshot, renamed, shown_frames
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, shorten, size

if TYPE_CHECKING:
    from otel_memwatch.run import RecordedRun

WIDTH, _ROW = 1000, 20
_DEEPEST = 40
_CHARACTER = 6.6
"""Pixels of a character at the font size below."""
_SHORTEST = 4
"""Characters of the shortest name that is drawn."""
_ALIKE = 0.02
"""Share of a difference below which calls of two runs are alike."""
_NARROWEST = 1.0
"""Pixels below which a call is not drawn."""


class _Call:
    """A node of the tree of calls."""

    def __init__(self) -> None:
        self.bytes = 0
        self.before = 0
        """Growth in the run to compare with."""
        self.library = False
        self.inner: dict[str, _Call] = {}


def flame(run: RecordedRun, base: RecordedRun | None = None) -> str:
    """Return the picture; empty without captures.

    `base`: colour each call by its difference from this run; empty if it has no captures.
    """
    root = _Call()
    _add(root, run)
    if base is not None:
        former = _Call()
        _add(former, base)
        if not former.bytes:
            return ""
        _compare(root, former)
    if not root.bytes:
        return ""
    parts: list[str] = []
    depth = _draw(root, root.bytes, 0.0, 0, parts, compared=base is not None)
    height = depth * _ROW
    picture = (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" font-family="system-ui, sans-serif" font-size="12" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
    words = "Calls by growth of memory while they ran, outermost first."
    return tag("figure", picture, class_="flame", role="group", aria_label=words)


def _add(root: _Call, run: RecordedRun) -> None:
    for capture in run.stacks.captures:
        if is_snapshot(capture):
            continue
        call = root
        call.bytes += capture.grown
        frames = shown_frames(busiest(capture).frames)
        for frame in list(reversed(frames))[:_DEEPEST]:
            # Lines of one function are one call here: a loop would otherwise split into its lines.
            name = frame_name(frame._replace(line=0))
            call = call.inner.setdefault(name, _Call())
            call.bytes += capture.grown
            call.library = is_library(frame)


def _compare(call: _Call, former: _Call) -> None:
    call.before = former.bytes
    names = renamed(former.inner, call.inner)
    for name, inner in call.inner.items():
        _compare(inner, former.inner.get(names.get(name, name)) or _Call())


def _colours(call: _Call, *, compared: bool) -> tuple[str, str]:
    """Return colour and opacity: by the origin of the code, or by the difference."""
    if not compared:
        return ("#8a949e", "0.25") if call.library else ("#00795c", "0.35")
    change = (call.bytes - call.before) / max(call.bytes, call.before, 1)
    if abs(change) < _ALIKE:
        return "#8a949e", "0.25"
    return "#c8500a" if change > 0 else "#2f7fb8", f"{0.2 + 0.5 * abs(change):.2f}"


def _draw(call: _Call, total: int, left: float, row: int, parts: list[str], *, compared: bool) -> int:
    """Draw the calls inside `call`, the largest first; return the number of rows used."""
    deepest = row
    for name, inner in sorted(call.inner.items(), key=lambda item: -item[1].bytes):
        width = WIDTH * inner.bytes / total
        if width >= _NARROWEST:
            share = f"{clean(name)}, {size(inner.bytes)}, {100 * inner.bytes / total:.0f} %"
            if compared:
                change = inner.bytes - inner.before
                share += f", {'-' if change < 0 else '+'}{size(abs(change))}"
            fill, opacity = _colours(inner, compared=compared)
            box = tag(
                "rect",
                "",
                x=f"{left:.1f}",
                y=row * _ROW + 1,
                width=f"{max(0.5, width - 1):.1f}",
                height=_ROW - 2,
                rx=2,
                fill=fill,
                fill_opacity=opacity,
            )
            room = int((width - 8) / _CHARACTER)
            text = ""
            if room >= _SHORTEST:
                text = tag(
                    "text",
                    escaped(shorten(clean(name), room)),
                    x=f"{left + 4:.1f}",
                    y=row * _ROW + 14,
                    fill="currentColor",
                )
            title = tag("title", escaped(share))
            parts.append(tag("g", title + box + text, tabindex="0", role="img", aria_label=share))
            # Calls below a box without room for a name would only make the picture tall.
            deeper = room >= _SHORTEST
            inside = _draw(inner, total, left, row + 1, parts, compared=compared) if deeper else row + 1
            deepest = max(deepest, inside)
            left += width
    return max(deepest, row + bool(call.inner))
