"""Figures and names as a person reads them: sizes, durations, peaks with their certainty, command lines.

Every text here is ASCII unless a name of the user's is not, holds no control character, and is one line.
"""

from __future__ import annotations

import math
import os
import signal

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.runtime.masking import MASK, mask_arguments
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.units import SIZE_UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNKNOWN = "unknown"
ELLIPSIS = "..."

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")
"""What a shell takes as it is."""

_DECIMALS = (0, 1, 1, 2, 2, 2, 2)
"""Tenths of a GiB would hide 100 MiB."""


def _power(value: float) -> int:
    """Power of 1024 of the unit in which `value` reads best, so that rounding never gives "1024.0 MiB"."""
    power = 0
    while power < len(SIZE_UNITS) - 1 and round(abs(value) / 1024**power, _DECIMALS[power]) >= 1024:
        power += 1
    return power


def _number(value: float, power: int) -> str:
    return f"{value / 1024**power:.{_DECIMALS[power]}f}"


def size(value: float | None) -> str:
    """Bytes, as "312.4 MiB" or "18.73 GiB"."""
    if value is None:
        return UNKNOWN
    power = _power(value)
    return f"{_number(value, power)} {SIZE_UNITS[power]}"


def change(value: float | None) -> str:
    """A difference in bytes, with its sign: "+12.0 MiB"."""
    if value is None:
        return UNKNOWN
    return ("+" if value >= 0 else "-") + size(abs(value))


def size_range(low: float, high: float, joint: str) -> str:
    """Two sizes in one unit: "300.0 to 410.0 MiB"; one where they read alike."""
    power = _power(high)
    first, second = _number(low, power), _number(high, power)
    return (
        f"{second} {SIZE_UNITS[power]}" if first == second else f"{first}{joint}{second} {SIZE_UNITS[power]}"
    )


def size_scale(value: float) -> tuple[float, str]:
    """The divisor and the name of the unit in which sizes up to `value` bytes read best: an axis."""
    power = _power(value)
    return float(1024**power), SIZE_UNITS[power]


def size_in(value: float, scale: float, unit: str) -> str:
    """Bytes in the unit of `size_scale`, so that all sizes of a picture can be compared: "0.57 GiB"."""
    decimals = _DECIMALS[SIZE_UNITS.index(unit)]
    return f"{value / scale:.{decimals}f} {unit}"


def duration(seconds: float | None) -> str:
    """Seconds, as "34 ms", "12.4 s", "3 min 05 s", "2 h 05 min" or "1 d 02 h"."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if round(seconds, 3) < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 1440:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def amount(value: float | None, unit: str) -> str:
    """Bytes ("By") or seconds ("s"), in words."""
    if value is None or math.isinf(value):
        return UNKNOWN
    return duration(value) if unit == "s" else size(value)


def bounds(low: float | None, high: float | None, unit: str) -> str:
    """What a figure lies between: "between 1.00 GiB and 1.20 GiB", "at least 1.00 GiB", "1.00 GiB"."""
    if high is None or math.isinf(high):
        return f"at least {amount(low, unit)}" if low else UNKNOWN
    if not low:
        return f"at most {amount(high, unit)}" if high else amount(high, unit)
    first, second = amount(low, unit), amount(high, unit)
    return first if first == second else f"between {first} and {second}"


def count(number: float | None, noun: str, plural: str | None = None) -> str:
    """A number with its noun: "1 process", "12 processes"."""
    if number is None:
        return f"{UNKNOWN} {plural or noun + 's'}"
    return f"{number:,.0f} {noun if number == 1 else plural or noun + 's'}".replace(",", " ")


def share(part: float, whole: float) -> str:
    """A part of a whole in percent: "61 %"; small and nearly whole parts keep a decimal."""
    percent = 100.0 * part / whole
    near_an_end = 0 < percent < 1 or 99 < percent < 100
    return f"{percent:.1f} %" if near_an_end else f"{percent:.0f} %"


def peak_figure(peak: Peak | None) -> str:
    """A peak in a table.

    =====================  =================
    not known              "-"
    exact, sampled         "312.4 MiB"
    bounds                 "300.0-410.0 MiB"
    a lower bound alone    ">= 300.0 MiB"
    an upper bound alone   "<= 9.4 MiB"
    =====================  =================
    """
    if peak is None:
        return "-"
    if peak.certainty is Certainty.INTERVAL:
        low = peak.bytes if peak.low is None else peak.low
        return f">= {size(low)}" if peak.high is None else size_range(low, peak.high, "-")
    if peak.certainty is Certainty.CENSORED:
        if peak.low:
            return size_range(peak.low, peak.bytes, "-")
        return f"<= {size(peak.bytes)}"
    return size(peak.bytes)


CERTAINTY_WORDS = {
    Certainty.EXACT: "exact",
    Certainty.INTERVAL: "bounds",
    Certainty.CENSORED: "at most",
    Certainty.SAMPLED: "sampled",
}
"""The word of each certainty in a table."""


def certainty(peak: Peak | None) -> str:
    """The certainty of a peak in a table."""
    if peak is None:
        return ""
    if peak.certainty is Certainty.INTERVAL and peak.high is None:
        return "at least"
    return CERTAINTY_WORDS[peak.certainty]


def peak_sentence(peak: Peak | None, *, source: bool = True) -> str:
    """A peak with its certainty and, with `source`, where it is known from, in words a person needs no manual for.

    ========================  ===================================================================
    not known                 "unknown"
    exact                     "312.4 MiB, exact (control group)"
    interval                  "between 300.0 and 410.0 MiB (certified, page faults)"
    interval and estimate     "about 340.0 MiB (between 300.0 and 410.0 MiB; certified, page faults)"
    interval, ends alike      "about 300.0 MiB (certified, page faults)"
    interval, no upper end    "at least 300.0 MiB (certified)"
    interval, something left  "between 0.2 and 60.8 MiB (without files in memory, page faults)"
    censored                  "at least 5.0 MiB and no more than 9.4 MiB"
    censored, no lower end    "no more than 9.4 MiB"
    sampled, an upper bound   "300.0 MiB seen (sampled), 410.0 MiB at most"
    sampled                   "300.0 MiB seen (sampled: it may have been more in between)"
    sampled, of processes     "300.0 MiB seen (sampled, sum of resident sizes at ticks: it may have been more in between)"
    ========================  ===================================================================
    """
    if peak is None:
        return UNKNOWN
    if not source:
        plain = peak._replace(how="", excludes=())
        return peak_sentence(plain).replace(" (certified)", "").replace("; certified)", ")")
    if peak.certainty is Certainty.EXACT:
        return f"{size(peak.bytes)}, {_because('exact', peak.how)}"
    if peak.certainty is Certainty.INTERVAL:
        low = peak.bytes if peak.low is None else peak.low
        if peak.high is None:
            return f"at least {size(low)} {_because('certified', peak.how, inside=True)}"
        word = f"without {' and '.join(peak.excludes)}" if peak.excludes else "certified"
        bounds = size_range(low, peak.high, " and ")
        alike = " and " not in bounds
        words = f"about {bounds}" if alike else f"between {bounds}"
        if peak.estimate is not None and not alike:
            return f"about {size(peak.estimate)} ({words}; {_because(f'{word},', peak.how, plain=True)})"
        return f"{words} {_because(word, peak.how, inside=True)}"
    if peak.certainty is Certainty.CENSORED:
        low_words = f"at least {size(peak.low)} and " if peak.low else ""
        return f"{low_words}no more than {size(peak.bytes)}{_source(peak.how)}"
    if peak.high is not None and peak.high > peak.bytes:
        return f"{size(peak.bytes)} seen (sampled), {size(peak.high)} at most"
    summed = f", {peak.how}" if peak.how.startswith("sum of") else ""
    return f"{size(peak.bytes)} seen (sampled{summed}: it may have been more in between)"


def _because(word: str, how: str, *, inside: bool = False, plain: bool = False) -> str:
    how = clean(how)
    if plain:
        return f"{word} {how}" if how else word.rstrip(",")
    if inside:
        return f"({word}, {how})" if how else f"({word})"
    return f"{word} ({how})" if how else word


def _source(how: str) -> str:
    return f" ({clean(how)})" if how else ""


def signal_name(number: int) -> str:
    """A signal as a shell's user knows it: "SIGKILL"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def clean(text: str) -> str:
    r"""Text that is safe on a terminal and in a table: control characters and broken bytes become "\x1b"."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_shown(c) else _escaped(c) for c in text)


def _is_shown(character: str) -> bool:
    if character.isascii():
        return character.isprintable()
    import unicodedata

    # Cf is where the marks stand that turn the direction of a whole line.
    return character.isprintable() and unicodedata.category(character) not in {"Cf", "Cs"}


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that was not UTF-8
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if character in short:
        return short[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cells(text: str) -> int:
    """Columns that `text` takes on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def shorten(text: str, width: int) -> str:
    """`text` within `width` columns of a terminal, its middle left out where it is longer."""
    if len(text) <= width and text.isascii() and text.isprintable():
        return text  # as nearly all are
    text = clean(text)
    if cells(text) <= width:
        return text
    room = width - len(ELLIPSIS)
    if room < 2:
        return _head(text, max(0, width))
    tail_width = room // 2
    tail = _head(text[::-1], tail_width)[::-1]
    return _head(text, room - cells(tail)) + ELLIPSIS + tail


def cut(text: str, width: int) -> str:
    """The first `width` columns of `text`; where something is left out, the last of them say so."""
    return text if cells(text) <= width else _head(text, max(0, width - len(ELLIPSIS))) + ELLIPSIS[:width]


def _head(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += cells(character)
        if used > width:
            return text[:index]
    return text


def command_line(argv: Sequence[str], width: int | None = None) -> str:
    """A command as it would be typed into a shell, in one line, within `width` columns; likely secrets are masked."""
    text = clean(" ".join(_quoted(word) for word in mask_arguments(argv)))
    return text if width is None else shorten(text, width)


def _quoted(word: str) -> str:
    if word == MASK:
        return word
    return shell_word(word) if word.isprintable() else f"'{word}'"


def shell_word(word: str) -> str:
    """A word as it is typed into a shell, as `shlex.quote` gives it."""
    if word and _PLAIN.issuperset(word):
        return word
    import shlex

    return shlex.quote(word)


def from_here(path: Path) -> str:
    """The path as it is written from the working directory, where it is below that; else, and where that is gone, as it is."""
    try:
        here = os.path.relpath(path)
    except OSError:
        return str(path)
    return str(path) if here.startswith(os.pardir) else here


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled up with blanks to `width` columns; to its left where `right`."""
    blanks = " " * max(0, width - cells(text))
    return blanks + text if right else text + blanks


def table(
    rows: Sequence[Sequence[str]], header: Sequence[str], right: str, hidden: Sequence[str] = ()
) -> list[str]:
    """Lines of a table with a header; `right` holds an "r" for each column that is aligned to the right, else "l".

    Columns without a single value are left out, so that a table shows only what is known; so are those `hidden`.
    """
    used = [
        i for i, name in enumerate(header)
        if (not name or name not in hidden) and any(row[i] not in ("", "-") for row in rows)
    ]  # fmt: skip
    widths = {i: max(cells(header[i]), *(cells(row[i]) for row in rows)) for i in used}
    lines = []
    for row in (header, *rows):
        line = "  ".join(pad(row[i], widths[i], right=right[i] == "r") for i in used)
        lines.append(line.rstrip())
    return lines
