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
    """Median of what the repetitions reported; `None` where most reported nothing."""
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
        *(f"watching {size}, 10 Hz" for size in sizes), "own memory", "stored per sample",
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
    tools = [
        tool
        for tool in known[0]["versions"]
        if any(tool in part["versions"] for part in parts.values() if part is not None)
    ]
    lines += [*cost_table(parts, tools), ""]
    costs = next((part for part in parts.values() if part is not None), None)
    if truth is not None:
        later = truth.get("later")
        also = (
            f" Of {later['date']}, once each while the machine did other work: {', '.join(later['tools'])}."
            if later
            else ""
        )
        lines.append(f"Truth: {described(truth)}{also}")
    if costs is not None:
        lines.append(f"Costs: {described(costs)}")
    return (
        "\n\n".join(["\n".join(lines[:-2]), *lines[-2:]])
        if truth is not None and costs is not None
        else "\n".join(lines)
    )


NEAR, SOME, FAR = 0.03, 0.10, 0.5
"""How far a figure may be from the truth for each colour."""

COLOURS = {
    "near": "#9fd3a8",
    "bounded": "#cfe5c0",
    "some": "#f5e08f",
    "far": "#f2b26b",
    "lost": "#e58b7b",
    "nothing": "#e6e6e6",
}


def heat(share: float | None, low: float | None, high: float | None) -> str:
    """The colour of a figure: how far it is from the truth, or that its bounds, reported as such, hold the truth."""
    if share is None:
        return "nothing"
    away = abs(share - 1)
    if away <= NEAR:
        return "near"
    if low is not None and high is not None and high - low > 0.05 and low - NEAR <= 1 <= high + NEAR:
        return "bounded"
    return "some" if away <= SOME else "far" if away <= FAR else "lost"


def right(truth: dict[str, Any]) -> dict[str, int]:
    """For each tool how many of the programs it reported to within 3 %."""
    return {
        tool: sum(heat(*figures) == "near" for figures in found.values())
        for tool, found in ratios(truth).items()
    }


def picture(results: Path, file: str) -> None:
    """A table of heat: a row for each tool, a column for each program, a colour for how far the figure is from the truth."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    truth = load(results, "truth")
    assert truth is not None, "truth has not been measured"
    found, counts = ratios(truth), right(truth)
    tools = [tool for tool in found if any(share is not None for share, _, _ in found[tool].values())]
    tools.sort(key=lambda tool: (not tool.startswith("otel-memwatch"), -counts[tool]))
    workloads = truth["result"]
    figure, axes = plt.subplots(figsize=(11.5, 0.36 * len(tools) + 2.3), layout="constrained")
    for row, tool in enumerate(tools):
        for column, workload in enumerate(workloads):
            share, low, high = found[tool][workload]
            kind = heat(share, low, high)
            axes.add_patch(plt.Rectangle((column, row), 0.97, 0.93, color=COLOURS[kind]))
            told = "nothing" if share is None else percent(share)
            if kind == "bounded":
                told = f"{percent(low)} to {percent(high)}"
            size = 7.5 if len(told) > 10 else 9
            axes.text(
                column + 0.485, row + 0.47, told, ha="center", va="center", fontsize=size, color="#222222"
            )
        of = f"{counts[tool]} of {len(workloads)}"
        axes.text(
            len(workloads) + 0.08,
            row + 0.47,
            of,
            va="center",
            fontsize=9,
            fontweight="bold" if row == 0 else None,
        )
    axes.set_xlim(0, len(workloads) + 0.9)
    axes.set_ylim(len(tools), 0)
    axes.set_yticks([row + 0.47 for row in range(len(tools))], tools, fontsize=9)
    words = [_folded(entry["words"]) for entry in workloads.values()]
    axes.set_xticks([column + 0.48 for column in range(len(workloads))], words, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    told_of = {
        "near": "the truth, to 3 %", "bounded": "bounds that hold it", "some": "to 10 %", "far": "to half", "lost": "farther", "nothing": "nothing told",
    }  # fmt: skip
    patches = [
        plt.Rectangle((0, 0), 1, 1, color=COLOURS[kind], label=words) for kind, words in told_of.items()
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def _folded(words: str) -> str:
    """Words in lines that a column has room for."""
    import textwrap

    return "\n".join(textwrap.wrap(words, 16))
