"""Figures and names for people: sizes, durations, peaks with their certainty, command lines.

Every text is one line without control characters, in ASCII except for names that the user chose.
"""

from __future__ import annotations

import math
import os

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.runtime.masking import MASK, mask_arguments
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.units import SIZE_UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN = "unknown"
ELLIPSIS = "..."

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")
"""Characters that need no quotes in a shell."""

_DECIMALS = (0, 1, 1, 2, 2, 2, 2)
"""Decimals of each unit. Tenths of a GiB would hide 100 MiB."""


def _power(value: float) -> int:
    """Return the power of 1024 of the best unit for `value`. Rounding never gives "1024.0 MiB"."""
    power = 0
    while power < len(SIZE_UNITS) - 1 and round(abs(value) / 1024**power, _DECIMALS[power]) >= 1024:
        power += 1
    return power


def size(value: float | None) -> str:
    """Return bytes as "312.4 MiB" or "18.73 GiB"."""
    if value is None:
        return UNKNOWN
    power = _power(value)
    return f"{value / 1024**power:.{_DECIMALS[power]}f} {SIZE_UNITS[power]}"


def change(value: float | None) -> str:
    """Return a difference in bytes with its sign: "+12.0 MiB", "0 B"."""
    if value is None:
        return UNKNOWN
    return ("+" if value >= 0.5 else "-" if value <= -0.5 else "") + size(abs(value))


def size_range(low: float, high: float, joint: str) -> str:
    """Return two sizes in one unit and three digits: "300-410 MiB"; one size if they round to the same digits."""
    power = _power(high)
    first, second = _three_digits(low, power), _three_digits(high, power)
    return size(high) if first == second else f"{first}{joint}{second} {SIZE_UNITS[power]}"


def within(low: float, high: float) -> str:
    """Return how far the one size that `size_range` prints may be from the true value: "within 0.8 MiB"; empty for two sizes."""
    power = _power(high)
    if not high or _three_digits(low, power) != _three_digits(high, power):
        return ""
    scale, decimals = 1024**power, _DECIMALS[power]
    shown, steps = round(high / scale, decimals), 10**decimals
    apart = max(shown - low / scale, high / scale - shown)
    return f"within {max(1, math.ceil(apart * steps - 1e-9)) / steps:.{decimals}f} {SIZE_UNITS[power]}"


def rounds_to_zero(low: float, high: float) -> bool:
    """Return whether a lower bound is 0 in the digits of `size_range` and says nothing, unlike the upper bound."""
    power = _power(high)
    return float(_three_digits(low, power)) == 0 < float(_three_digits(high, power))


def _three_digits(value: float, power: int) -> str:
    scaled = value / 1024**power
    return f"{scaled:.{max(0, min(_DECIMALS[power], 3 - len(str(int(scaled)))))}f}"


def size_scale(value: float) -> tuple[float, str]:
    """Return divisor and name of the best unit for an axis with sizes up to `value` bytes."""
    power = _power(value)
    return float(1024**power), SIZE_UNITS[power]


def size_in(value: float, scale: float, unit: str) -> str:
    """Return bytes in the unit of `size_scale`, the same for all sizes of a picture: "0.57 GiB"."""
    decimals = _DECIMALS[SIZE_UNITS.index(unit)]
    return f"{value / scale:.{decimals}f} {unit}"


def size_beside(value: float, larger: float) -> str:
    """Return bytes in the unit of a larger size in the same row; in their own unit if they would round to zero."""
    text = size_in(value, *size_scale(larger))
    return text if float(text.split()[0]) else size(value)


def duration(seconds: float | None) -> str:
    """Return seconds as "34 ms", "12.4 s", "3 min 05 s", "2 h 05 min" or "1 d 02 h"."""
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
    """Return bytes ("By"), seconds ("s") or a share ("1") in words."""
    if value is None or math.isinf(value):
        return UNKNOWN
    if unit == "1":
        return f"{100 * value:.3g} %"
    return duration(value) if unit == "s" else size(value)


def bounds(low: float | None, high: float | None, unit: str) -> str:
    """Return a range in words: "1.00-1.20 GiB", "at least 1.00 GiB", "1.00 GiB"."""
    if high is None or math.isinf(high):
        return f"at least {amount(low, unit)}" if low else UNKNOWN
    if not low or (unit != "s" and rounds_to_zero(low, high)):
        return f"at most {amount(high, unit)}" if high else amount(high, unit)
    if unit != "s":
        return size_range(low, high, "-")
    first, second = amount(low, unit), amount(high, unit)
    return first if first == second else f"{first} to {second}"


def count(number: float | None, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 process", "12 processes"."""
    if number is None:
        return f"{UNKNOWN} {plural or noun + 's'}"
    return f"{number:,.0f} {noun if number == 1 else plural or noun + 's'}".replace(",", " ")


def digits(value: float, number: int) -> str:
    """Return a value with so many significant digits, and with all digits before the point: "1235000", not "1.2e+06"."""
    return f"{value:.0f}" if abs(value) >= 10 ** (number - 1) else f"{value:.{number}g}"


def share(part: float, whole: float) -> str:
    """Return a part of a whole in percent: "61 %"; small and nearly whole parts keep a decimal."""
    percent = 100.0 * part / whole
    near_an_end = 0 < percent < 1 or 99 < percent < 100
    return f"{percent:.1f} %" if near_an_end else f"{percent:.0f} %"


def peak_figure(peak: Peak | None) -> str:
    """Return a peak for a table.

    =====================  =================
    unknown                "-"
    exact, sampled         "312.4 MiB"
    range                  "300-410 MiB"
    a lower bound alone    ">= 300.0 MiB"
    an upper bound alone   "<= 9.4 MiB"
    =====================  =================
    """
    if peak is None:
        return "-"
    if peak.certainty is Certainty.INTERVAL:
        low = peak.bytes if peak.low is None else peak.low
        if peak.high is None:
            return f">= {size(low)}" if low else "-"
        return f"<= {size(peak.high)}" if rounds_to_zero(low, peak.high) else size_range(low, peak.high, "-")
    if peak.certainty is Certainty.CENSORED:
        if peak.low:
            return size_range(peak.low, peak.bytes, "-")
        return f"<= {size(peak.bytes)}"
    return size(peak.bytes)


CERTAINTY_WORDS = {
    Certainty.EXACT: "exact",
    Certainty.INTERVAL: "range",
    Certainty.CENSORED: "at most",
    Certainty.SAMPLED: "sampled",
}
"""Words for certainties in a table."""


def certainty(peak: Peak | None) -> str:
    """Return the certainty of a peak for a table."""
    if peak is None:
        return ""
    if peak.certainty is Certainty.INTERVAL:
        low = peak.bytes if peak.low is None else peak.low
        if peak.high is None:
            return "at least" if low else ""
        return "at most" if rounds_to_zero(low, peak.high) else within(low, peak.high) or "range"
    if peak.certainty is Certainty.CENSORED and peak.low:
        return within(peak.low, peak.bytes) or "range"
    return CERTAINTY_WORDS[peak.certainty]


_SUMS = frozenset((Evidence.RSS_SUM, Evidence.PSS_SUM, Evidence.HUGETLB_SUM, Evidence.RANKS, Evidence.HOSTS))
"""Evidence that is a sum over processes or runs."""


def peak_sentence(peak: Peak | None, *, source: bool = True) -> str:
    """Return a peak with its certainty: the number first, then the certainty; with `source`, the evidence too.

    | peak                     | text                                                    |
    | ------------------------ | ------------------------------------------------------- |
    | unknown                  | "unknown"                                               |
    | exact                    | "312.4 MiB (exact, cgroup watermark)"                   |
    | range                    | "300-410 MiB (page faults)"                             |
    | range and estimate       | "300-410 MiB, best estimate 340 MiB (page faults)"      |
    | range, bounds alike      | "300.4 MiB (within 0.8 MiB, page faults)"               |
    | range, no upper bound    | "at least 300.0 MiB (samples)"                            |
    | range from almost 0      | "at most 603.0 MiB (page faults)"                       |
    | range, something left    | "0.2-60.8 MiB (excluding files in memory and pipes)"    |
    | censored                 | "5.0-9.4 MiB"                                           |
    | censored, no lower bound | "at most 9.4 MiB"                                       |
    | sampled, an upper bound  | "300.0 MiB (sampled), at most 410.0 MiB"                |
    | sampled                  | "300.0 MiB (sampled)"                                   |
    | sampled, of processes    | "300.0 MiB (sampled, sum of sizes)"                     |
    """
    if peak is None:
        return UNKNOWN
    how = clean(peak.how) if source else ""
    if peak.certainty is Certainty.EXACT:
        return f"{size(peak.bytes)}{_in_parentheses('exact', how)}"
    if peak.certainty is Certainty.SAMPLED:
        if peak.high is not None and peak.high > peak.bytes:
            return f"{size(peak.bytes)} (sampled), at most {size(peak.high)}"
        return (
            f"{size(peak.bytes)}{_in_parentheses('sampled', '' if _SUMS.isdisjoint(peak.evidence) else how)}"
        )
    if peak.certainty is Certainty.CENSORED:
        words = size_range(peak.low, peak.bytes, "-") if peak.low else f"at most {size(peak.bytes)}"
        return words + _in_parentheses(within(peak.low, peak.bytes) if peak.low else "", how)
    low = peak.bytes if peak.low is None else peak.low
    if peak.high is None:
        return f"at least {size(low)}{_in_parentheses(how)}" if low else UNKNOWN
    open_below = rounds_to_zero(low, peak.high)
    words = f"at most {size(peak.high)}" if open_below else size_range(low, peak.high, "-")
    near = "" if open_below else within(low, peak.high)
    if estimate := best_estimate(peak):
        words += f", best estimate {estimate}"
    # Reports say in a sentence which kernel memory is excluded. Write calls fill pipes as they fill files in memory.
    excludes = ["files in memory and pipes" if one == "files in memory" else one for one in peak.excludes]
    excludes = [one for one in excludes if one != "kernel"]
    excluded = f"excluding {' and '.join(excludes)}" if excludes else ""
    return words + _in_parentheses(near, excluded, how)


def best_estimate(peak: Peak | None) -> str:
    """Return the best estimate of a range that is wide enough to show; empty without one.

    It has the unit of the upper bound: "340 MiB" for 300 to 410 MiB. One that would be 0 in it has a smaller one: "37 KiB".
    """
    if peak is None or peak.estimate is None or peak.high is None or peak.certainty is not Certainty.INTERVAL:
        return ""
    low = peak.bytes if peak.low is None else peak.low
    if not rounds_to_zero(low, peak.high) and within(low, peak.high):
        return ""
    if rounds_to_zero(peak.estimate, peak.high):
        return size(peak.estimate) if peak.estimate else ""
    power = _power(peak.high)
    return f"{_three_digits(peak.estimate, power)} {SIZE_UNITS[power]}"


def _in_parentheses(*words: str) -> str:
    known = ", ".join(filter(None, words))
    return f" ({known})" if known else ""


def clean(text: str) -> str:
    r"""Return text that is safe on a terminal and in a table: control characters and broken bytes become "\x1b"."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_shown(c) else _escaped(c) for c in text)


def _is_shown(character: str) -> bool:
    if character.isascii():
        return character.isprintable()
    import unicodedata

    # Cf includes the marks that reverse the direction of a whole line.
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
    """Return the columns of `text` on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def shorten(text: str, width: int) -> str:
    """Return `text` within `width` columns of a terminal; omit its middle if it is longer."""
    if len(text) <= width and text.isascii() and text.isprintable():
        return text  # the common case
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
    """Return the first `width` columns of `text`. If it is longer, they end in an ellipsis."""
    return text if cells(text) <= width else _head(text, max(0, width - len(ELLIPSIS))) + ELLIPSIS[:width]


def _head(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    used = 0
    for index, character in enumerate(text):
        used += cells(character)
        if used > width:
            return text[:index]
    return text


def command_line(argv: Sequence[str], width: int | None = None) -> str:
    """Return a command as typed into a shell, in one line within `width` columns. Likely secrets are masked."""
    text = clean(" ".join(_quoted(word) for word in mask_arguments(argv)))
    return text if width is None else shorten(text, width)


def _quoted(word: str) -> str:
    if word == MASK:
        return word
    return shell_word(word) if word.isprintable() else f"'{word}'"


def shell_word(word: str) -> str:
    """Return a word as typed into a shell, like `shlex.quote`."""
    if word and _PLAIN.issuperset(word):
        return word
    import shlex

    return shlex.quote(word)


def from_here(path: str | os.PathLike[str]) -> str:
    """Return the path relative to the working directory if it is below; else the path unchanged.

    It is also unchanged if the working directory no longer exists.
    """
    try:
        here = os.path.relpath(path)
    except OSError:
        return str(path)
    return str(path) if here.startswith(os.pardir) else here


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Pad `text` with blanks to `width` columns; with `right`, align it to the right."""
    blanks = " " * max(0, width - cells(text))
    return blanks + text if right else text + blanks


def known_columns(
    rows: Sequence[Sequence[str]], header: Sequence[str], hidden: Sequence[str] = ()
) -> list[int]:
    """Return the columns of a table that have a value in any row and are not `hidden`."""
    return [
        i for i, name in enumerate(header)
        if (not name or name not in hidden) and any(row[i] not in ("", "-") for row in rows)
    ]  # fmt: skip


def table(
    rows: Sequence[Sequence[str]], header: Sequence[str], right: str, hidden: Sequence[str] = ()
) -> list[str]:
    """Return the lines of a table with a header; `right` holds an "r" for each column aligned to the right, else "l".

    Columns without any value are omitted, and so are those in `hidden`.
    """
    used = known_columns(rows, header, hidden)
    widths = {i: max(cells(header[i]), *(cells(row[i]) for row in rows)) for i in used}
    lines = []
    for row in (header, *rows):
        line = "  ".join(pad(row[i], widths[i], right=right[i] == "r") for i in used)
        lines.append(line.rstrip())
    return lines
