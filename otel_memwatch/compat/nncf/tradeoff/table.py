"""The Markdown table of a trade-off."""

from __future__ import annotations

import math

from otel_memwatch.compat.nncf.tradeoff.variants import ceiling, floor
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.compat.nncf.tradeoff.variants import Tradeoff
    from otel_memwatch.model import Peak


def markdown(tradeoff: Tradeoff) -> str:
    """Return the table without a final newline; columns are as wide as their widest cell."""
    # Ranks are aligned at the decimal point, and at the right if there is one.
    texts = ["" if one.row.rank is None else f"{one.row.rank:g}" for one in tradeoff.variants]
    tails = [len(text) - text.index(".") if "." in text else 0 for text in texts]
    widest = max(tails, default=0)
    ranks = [text + " " * (widest - tail) if text else "" for text, tail in zip(texts, tails, strict=True)]
    columns: list[tuple[str, list[str], bool]] = [
        ("mode", [variant.row.mode.replace("|", "\\|") for variant in tradeoff.variants], False),
        ("%int4", [f"{variant.row.int4 * 100:.0f}%" for variant in tradeoff.variants], False),
        ("%int8", [f"{variant.row.int8 * 100:.0f}%" for variant in tradeoff.variants], False),
        ("lora<br>rank", ranks, any(texts)),
        (
            "average<br>relative<br>error",
            # Without the addition, a value that rounds to zero may be "-0.0%".
            [f"{round(variant.error * 100, 1) + 0.0:.1f}%" for variant in tradeoff.variants],
            False,
        ),
        ("compression<br>rate", [f"{variant.rate:.1f}x" for variant in tradeoff.variants], False),
    ]
    if tradeoff.measured:
        columns.insert(
            5, ("peak<br>memory", [_memory(variant.row.peak) for variant in tradeoff.variants], False)
        )
    cells, rules = [], []
    for header, values, right in columns:
        width = max([len(header) + 2, *map(len, values)])
        cells.append([text.rjust(width) if right else text.ljust(width) for text in [header, *values]])
        rules.append("-" * (width + 1) + ":" if right else ":" + "-" * (width + 1))
    lines = ["| " + " | ".join(line) + " |" for line in zip(*cells, strict=True)]
    lines.insert(1, "|" + "|".join(rules) + "|")
    return "\n".join(lines)


def _memory(peak: Peak | None) -> str:
    if peak is None:
        return ""
    low, high = floor(peak), ceiling(peak)
    if math.isinf(high):
        return f"at least {low / 2**20:.1f} MiB"
    if high - low <= 0.01 * high:
        return f"{peak.bytes / 2**20:.1f} MiB"
    return f"{low / 2**20:.1f} to {high / 2**20:.1f} MiB"
