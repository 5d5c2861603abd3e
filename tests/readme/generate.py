"""Writes what README and the manual (docs/) show of the program, from its code and by running it.

    python tests/readme/generate.py            run everything, replace all blocks, pages and pictures
    python tests/readme/generate.py --steady   replace what is the same on every machine
    python tests/readme/generate.py --check    compare that

A block stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`. Pages that are made of the code as a whole are in `PAGES`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from otel_memwatch.catalog import METRICS
from otel_memwatch.cli.metrics import markdown
from otel_memwatch.config import OPTIONS
from tests.bench import bench_install, bench_knee
from tests.page.shots import shoot_for_readme
from tests.readme import drawings, reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TRAIN = DOCS / "examples/train.py"
PROGRAM = [sys.executable, "-m", "otel_memwatch"]


def fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def options() -> str:
    rows = []
    for option in OPTIONS.values():
        flag = option.flag if option.metavar is None else f"{option.flag} {option.metavar}"
        where = ", ".join(f"`{command}`" for command in option.commands)
        default = {None: "", (): "", True: "on", False: "off"}.get(option.default, option.default)
        rows.append([f"`{flag}`", f"`{option.variable}`", str(default), where, option.help])
    return reference.table(["option", "variable", "default", "for", "meaning"], rows)


def script() -> str:
    return "<!-- long: it computes for seconds -->\n" + fenced(TRAIN.read_text(), "python")


def comparison() -> str:
    """The tables of the kept results of tests/bench/compare."""
    argv = [sys.executable, "-m", "tests.bench.compare", "table"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def light() -> str:
    """Return the size of an installation, from the stored result."""
    return bench_install.markdown(json.loads(bench_install.RESULTS.read_text()))


def counts() -> str:
    conventions = sum(not name.startswith("memwatch.") for name in METRICS)
    return (
        f"{len(METRICS)} metrics, {conventions} of them under names of OpenTelemetry's semantic conventions"
    )


def metrics() -> str:
    return "\n" + markdown()


STEADY: dict[str, Callable[[], str]] = {
    "options": options,
    "script": script,
    "counts": counts,
    "metrics": metrics,
    "comparison": comparison,
    "light": light,
    "knees": bench_knee.markdown,
    "knees-summary": bench_knee.stated,
}
"""Blocks that do not depend on the machine."""

PAGES: dict[str, Callable[[], str]] = {
    "commands": reference.commands_page,
    "python": reference.python_page,
    "run-directory": reference.run_directory_page,
    "schemas": reference.schemas_page,
}
"""Pages of docs/reference that are made as a whole."""


def documents() -> list[Path]:
    """README and every page with blocks."""
    whole = {DOCS / f"reference/{name}.md" for name in PAGES}
    return [ROOT / "README.md", *sorted(set(DOCS.rglob("*.md")) - whole)]


def run_demo(folder: Path) -> str:
    argv = [*PROGRAM, "wrap", "--", "otel-memwatch", "demo"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
    (run,) = (folder / "memwatch-runs").glob("*demo*")
    shoot_for_readme(run)
    return fenced("$ otel-memwatch wrap -- otel-memwatch demo\n" + done.stdout + done.stderr)


def run_script(folder: Path) -> str:
    (folder / "train.py").write_text(TRAIN.read_text())
    argv = [*PROGRAM, "wrap", "--quiet", "--plot", "--out", "memwatch-runs/train", "--", "python", "train.py"]
    subprocess.run(argv, cwd=folder, check=True)
    (DOCS / "pictures/train.png").write_bytes((folder / "memwatch-runs/train/memory.png").read_bytes())
    report = (folder / "memwatch-runs/train/report.txt").read_text()
    found = re.search(r"^Operations.*?(?=^Processes$)", report, re.DOTALL | re.MULTILINE)
    assert found, "the report has no operations"
    return fenced("$ otel-memwatch wrap -- python train.py\n$ otel-memwatch report\n...\n" + found[0])


def replaced(text: str, blocks: dict[str, Callable[[], str]]) -> str:
    """The text with those of its blocks that are named."""
    for name, make in blocks.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if begin in text:
            head, rest = text.split(begin, 1)
            assert end in rest, f"no end of block {name}"
            text = f"{head}{begin}\n{make()}\n{end}{rest.split(end, 1)[1]}"
    return text


def made(blocks: dict[str, Callable[[], str]]) -> dict[Path, str]:
    """Each document as it should be."""
    pages = {DOCS / f"reference/{name}.md": make() for name, make in PAGES.items()}
    pages |= {DOCS / "pictures/known" / name: text for name, text in drawings.pictures().items()}
    return pages | {path: replaced(path.read_text(), blocks) for path in documents()}


def main() -> int:
    blocks = dict(STEADY)
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory() as folder:
            demo, operations = run_demo(Path(folder)), run_script(Path(folder))
        blocks |= {"demo": lambda: demo, "operations": lambda: operations}
    stale = [path for path, text in made(blocks).items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(
                f"{path.relative_to(ROOT)} is not up to date: run python tests/readme/generate.py",
                file=sys.stderr,
            )
        return 1 if stale else 0
    for path, text in made(blocks).items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
