"""Writes what README shows of the program, by running it.

    python tests/readme/generate.py            run everything, replace all blocks and pictures
    python tests/readme/generate.py --steady   replace the blocks that are the same on every machine
    python tests/readme/generate.py --check    compare these

A block stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from otel_memwatch.catalog import METRICS
from otel_memwatch.cli import COMMANDS
from otel_memwatch.config import OPTIONS
from tests.page.shots import shoot_for_readme

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
PROGRAM = [sys.executable, "-m", "otel_memwatch"]


def fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def commands() -> str:
    rows = [f"| `{name}` | {text} |" for name, text in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "| --- | --- |", *rows])


def options() -> str:
    rows = []
    for option in OPTIONS.values():
        flag = option.flag if option.metavar is None else f"{option.flag} {option.metavar}"
        where = ", ".join(f"`{command}`" for command in option.commands)
        default = {None: "", (): "", True: "on", False: "off"}.get(option.default, option.default)
        flag = flag.replace("|", "\\|")
        rows.append(f"| `{flag}` | `{option.variable}` | {default} | {where} | {option.help} |")
    return "\n".join(
        ["| option | variable | default | for | meaning |", "| --- | --- | --- | --- | --- |", *rows]
    )


def script() -> str:
    return fenced((HERE / "train.py").read_text(), "python")


def comparison() -> str:
    """The tables of the kept results of tests/bench/compare."""
    argv = [sys.executable, "-m", "tests.bench.compare", "table"]
    done = subprocess.run(argv, cwd=HERE.parents[1], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def counts() -> str:
    conventions = sum(not name.startswith("memwatch.") for name in METRICS)
    return (
        f"{len(METRICS)} metrics, {conventions} of them under names of OpenTelemetry's semantic conventions"
    )


STEADY: dict[str, Callable[[], str]] = {
    "commands": commands,
    "options": options,
    "script": script,
    "counts": counts,
    "comparison": comparison,
}
"""Blocks that do not depend on the machine."""


def run_demo(folder: Path) -> str:
    argv = [*PROGRAM, "wrap", "--out", "memwatch-runs/demo", "--", "otel-memwatch", "demo"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
    shoot_for_readme(folder / "memwatch-runs/demo")
    return fenced("$ otel-memwatch wrap -- otel-memwatch demo\n" + done.stdout + done.stderr)


def run_script(folder: Path) -> str:
    (folder / "train.py").write_text((HERE / "train.py").read_text())
    argv = [*PROGRAM, "wrap", "--quiet", "--plot", "--out", "memwatch-runs/train", "--", "python", "train.py"]
    subprocess.run(argv, cwd=folder, check=True)
    (HERE / "train.png").write_bytes((folder / "memwatch-runs/train/memory.png").read_bytes())
    report = (folder / "memwatch-runs/train/report.txt").read_text()
    found = re.search(r"^Operations.*?(?=^Processes$)", report, re.DOTALL | re.MULTILINE)
    assert found, "the report has no operations"
    return fenced("$ otel-memwatch wrap -- python train.py\n$ otel-memwatch report\n...\n" + found[0])


def replace(text: str, name: str, block: str) -> str:
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    assert begin in text, f"README has no block {name}"
    assert end in text, f"README has no end of block {name}"
    head, rest = text.split(begin, 1)
    return f"{head}{begin}\n{block}\n{end}{rest.split(end, 1)[1]}"


def steady(text: str) -> str:
    """README with its steady blocks as they should be."""
    for name, make in STEADY.items():
        text = replace(text, name, make())
    return text


def main() -> int:
    text = README.read_text()
    if "--check" in sys.argv:
        if steady(text) == text:
            return 0
        print("README.md is not up to date: run python tests/readme/generate.py", file=sys.stderr)
        return 1
    if "--steady" in sys.argv:
        README.write_text(steady(text))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        text = replace(steady(text), "demo", run_demo(Path(folder)))
        text = replace(text, "operations", run_script(Path(folder)))
    README.write_text(text)
    subprocess.run([*PROGRAM, "metrics", "--update", str(README)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
