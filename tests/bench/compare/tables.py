"""The kept results as Markdown tables and as a picture."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

MIB = 1 << 20
NOTHING = "-"


def load(results: Path, part: str) -> dict[str, Any] | None:
    """The results of a part; `None`: it was not measured."""
    path = results / f"{part}.json"
    return dict(json.loads(path.read_text())) if path.exists() else None


def median(entries: list[Any], name: str) -> float | None:
    """Median of what the repetitions told; `None` where most told nothing."""
    known = [entry[name] for entry in entries if entry is not None and entry.get(name) is not None]
    return statistics.median(known) if 2 * len(known) > len(entries) else None


def ratios(truth: dict[str, Any]) -> dict[str, dict[str, tuple[float | None, float | None, float | None]]]:
    """For each tool and workload: what it reports as a part of the truth, and its lower and upper bound."""
    found: dict[str, dict[str, tuple[float | None, float | None, float | None]]] = {}
    for workload, entry in truth["result"].items():
        true, figure = entry["truth"]["median"], entry["figure"]
        for tool, entries in entry["reported"].items():
            bounds = ("low", "high") if figure == "peak" else (None, None)
            values = [None if name is None else median(entries, name) for name in (figure, *bounds)]
            found.setdefault(tool, {})[workload] = tuple(None if v is None else v / true for v in values)  # type: ignore[assignment]
    return found


def percent(share: float | None) -> str:
    """A share of the truth."""
    if share is None:
        return NOTHING
    return f"{share * 100:.0f} %" if share < 2 else f"{share:.1f} times"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [_row(head), _row(["---", *["---:"] * (len(head) - 1)]), *map(_row, rows)]


def truth_table(truth: dict[str, Any]) -> list[str]:
    """Reported against truth."""
    workloads = truth["result"]
    head = ["reported, truth = 100 %", *(entry["words"] for entry in workloads.values())]
    rows = []
    for tool, found in ratios(truth).items():
        cells = []
        for workload in workloads:
            share, low, high = found[workload]
            cell = percent(share)
            if share is not None and low is not None and high is not None and high - low > 0.05:
                cell += f" ({percent(low)} to {percent(high)})"
            cells.append(f"**{cell}**" if share is not None and abs(share - 1) <= 0.03 else cell)
        rows.append([tool, *cells])
    truths = [f"{entry['truth']['median'] / MIB:.1f} MiB" for entry in workloads.values()]
    return _table(head, [["*truth*", *truths], *rows])


def _added(part: dict[str, Any] | None, command: str, tool: str) -> str:
    figures = part["result"].get(command, {}) if part else {}
    if tool not in figures:
        return NOTHING
    return f"{(figures[tool]['median'] - figures['bare']['median']) * 1e3:.0f} ms"


def _slower(part: dict[str, Any] | None, tool: str) -> str:
    figures = part["result"]["cpu"] if part else {}
    if tool not in figures:
        return NOTHING
    return f"{(figures[tool]['median'] / figures['bare']['median'] - 1) * 100:+.1f} %"


def _watching(part: dict[str, Any] | None, tool: str) -> list[str]:
    sizes = part["result"]["sizes"] if part else {}
    cells = [
        f"{share * 100:.2g} %"
        if (share := median(entries.get(tool, [{}]), "core_share")) is not None
        else NOTHING
        for entries in sizes.values()
    ]
    first = next(iter(sizes.values()), {}).get(tool)
    if not first:
        return [*cells, NOTHING, NOTHING]
    memory, disk, ticks = (median(first, name) for name in ("memory", "disk", "ticks"))
    kept = (disk or 0) - (median(first, "rendered") or 0)
    each = f"{kept / ticks:.0f} B" if ticks else NOTHING
    return [*cells, NOTHING if memory is None else f"{memory / MIB:.0f} MiB", each]


def _killed(part: dict[str, Any] | None, victim: str, tool: str) -> str:
    entries = part["result"][victim].get(tool) if part else None
    if not entries:
        return NOTHING
    peak = median(entries, "peak")
    said = "nothing" if peak is None else percent(peak / (404.5 * MIB))
    return said if victim == "target" or entries[0]["target_survives"] else f"{said}, target dies"


def cost_table(parts: dict[str, dict[str, Any] | None], tools: list[str]) -> list[str]:
    """What each tool costs, and what it loses."""
    sizes = parts["watching"]["result"]["sizes"] if parts["watching"] else {}
    head = [
        "", "`true` takes longer", "`python -c pass` takes longer", "command starts later", "work takes longer (CPU time)",
        *(f"watching {size}, 10 Hz" for size in sizes), "own memory", "kept per look",
        "tool killed: peak known", "target killed: peak known",
    ]  # fmt: skip
    rows = [
        [
            tool,
            *(
                _added(parts["start"], command, tool)
                for command in ("true", "python -c pass", "until it runs")
            ),
            _slower(parts["slowdown"], tool),
            *_watching(parts["watching"], tool),
            *(_killed(parts["killed"], victim, tool) for victim in ("tool", "target")),
        ]
        for tool in tools
    ]
    return _table(head, rows)


def described(part: dict[str, Any]) -> str:
    """The machine, the versions and what could not be installed, in a few sentences."""
    machine = part["machine"]
    versions = ", ".join(
        f"{tool} {version}"
        for tool, version in part["versions"].items()
        if version and not tool.startswith("otel-memwatch")
    )
    missing = "".join(f" Not installed: {tool} ({why})." for tool, why in part["not_installed"].items())
    return (
        f"Measured on {machine['date']}: {machine['cpus']} processors ({machine['model']}), "
        f"{machine['memory'] / 2**30:.0f} GiB, Linux {machine['kernel']}, Python {machine['python']}. {versions}.{missing}"
    )


def markdown(results: Path) -> str:
    """Both tables with the machine that they were measured on."""
    truth = load(results, "truth")
    parts = {name: load(results, name) for name in ("start", "slowdown", "watching", "killed")}
    known = [part for part in (truth, *parts.values()) if part is not None]
    if not known:
        return "Nothing has been measured yet: python -m tests.bench.compare measure"
    lines: list[str] = []
    if truth is not None:
        lines += [*truth_table(truth), ""]
    lines += [*cost_table(parts, list(known[0]["versions"])), "", described(known[0])]
    return "\n".join(lines)


def picture(results: Path, file: str) -> None:
    """How far from the truth each tool is: a point for each workload."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    truth = load(results, "truth")
    assert truth is not None, "truth has not been measured"
    found = ratios(truth)
    tools = list(found)[::-1]
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(tools) + 1.6), layout="constrained")
    axes.axvspan(0.97, 1.03, color="#d9ead3", zorder=0)
    axes.axvline(1.0, color="#4c9a4c", linewidth=1)
    for place, workload in enumerate(truth["result"]):
        xs = [max(0.01, share) if (share := found[tool][workload][0]) is not None else None for tool in tools]
        pairs = [(x, y + (place - 4) * 0.07) for y, x in enumerate(xs) if x is not None]
        axes.scatter(
            [x for x, _ in pairs], [y for _, y in pairs], s=26, label=truth["result"][workload]["words"]
        )
    axes.set_xscale("log")
    axes.set_xlim(0.008, 8)
    axes.set_xticks([0.01, 0.1, 0.5, 1, 2, 5], ["≤ 1 %", "10 %", "50 %", "truth", "twice", "5 times"])
    axes.minorticks_off()
    axes.set_yticks(range(len(tools)), tools)
    axes.grid(axis="x", alpha=0.3)
    axes.set_title(
        "What is reported, as a part of the truth (no point: nothing is reported)", loc="left", fontsize=10
    )
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(file, dpi=130)
