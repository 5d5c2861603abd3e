"""Measures this project's own command at commits spread over its history, and prints the changes.

python -m tests.bench.history DIRECTORY [COMMITS] [--repeat N]

Each commit is checked out into a temporary work tree and runs as plain Python with the installed dependencies. Commits that
fail to run are listed as failed. DIRECTORY receives the runs and the page. Steps of memory are traced to their commits by
bisection; a step that a merge brought, to the commits of the merged line.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = ("-m", "otel_memwatch", "runs", "--help")
REVISION = "vcs.ref.head.revision"
HERE = Path(__file__).parents[2]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True, cwd=HERE).stdout


def _ours(*words: str) -> str:
    # The installed script: with -m, the package of the checked-out commit would record itself.
    script = str(Path(sys.executable).with_name("otel-memwatch"))
    return subprocess.run([script, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def work_tree() -> Iterator[str]:
    """Yield a work tree without a branch, in a temporary directory."""
    with tempfile.TemporaryDirectory() as place:
        tree = f"{place}/tree"
        _git("worktree", "add", "--detach", tree, "HEAD")
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", tree)


def measure(tree: str, commit: str, runs: Path) -> None:
    """Record the command at a commit."""
    subprocess.run(["git", "checkout", "-q", commit], check=True, cwd=tree)
    command = [
        Path(sys.executable).with_name("otel-memwatch"),
        "wrap",
        "--quiet",
        "--runs",
        runs,
        "--name",
        "runs --help",
    ]
    program = ["env", f"PYTHONPATH={tree}", sys.executable, *COMMAND]
    paths = {"PATH": "/usr/bin:/bin", "HOME": str(Path(tree).parent)}
    # The first run compiles the modules that the commit changed, which takes memory too.
    for words in (program, [*command, "--", *program]):
        subprocess.run(words, check=False, cwd=tree, env=paths, stdout=subprocess.DEVNULL)


def trace(tree: str, change: dict[str, Any], place: Path) -> None:
    """Print the commit of a step: bisect the commits from before the step to after it, three runs each."""
    reach = max(2, change["possible_runs"])
    last, first = (
        json.loads(Path(change[key], "run.json").read_text())["vcs"][REVISION]
        for key in ("last_run", "first_run")
    )
    middle = (change["before"] + change["after"]) / 2

    def is_after(commit: str) -> bool:
        runs = place / f"{change['figure']}-{commit[:10]}"
        if not runs.exists():
            for _ in range(3):
                measure(tree, commit, runs)
        rows = json.loads(_ours("runs", str(runs), "--json", "--columns", change["figure"]))
        value = statistics.median(next(iter(row.values())) for row in rows)
        return (value > middle) == (change["after"] > change["before"])

    line = f"{last}~{3 * reach}..{first}"
    while True:
        between = _git("rev-list", "--first-parent", "--reverse", line).split()
        at = bisect.bisect_left(between, True, hi=len(between) - 1, key=is_after)
        merged = _git("log", "-1", "--format=%P", between[at]).split()[1:]
        if not merged or not is_after(merged[0]):
            break
        line = f"{between[at]}^1..{merged[0]}"  # the merge brought the step: search the line that it merged
    commit = _git("log", "-1", "--format=%h of %cs: %s", between[at]).strip()
    print(f"{change['figure']} {change['change'] / (1 << 20):+.1f} MiB at {commit}", flush=True)


def main() -> None:
    """Record the commits, oldest first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("commits", type=int, nargs="?", default=60)
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    runs = given.directory.absolute() / "runs"
    history = _git("rev-list", "--first-parent", "--reverse", "HEAD").split()
    chosen = [
        history[place * (len(history) - 1) // max(1, given.commits - 1)] for place in range(given.commits)
    ]
    with work_tree() as tree:
        for commit in dict.fromkeys(chosen):
            for _ in range(given.repeat):
                measure(tree, commit, runs)
        found = json.loads(_ours("runs", str(runs), "--changes", "--json"))["changes"]
        for change in found:
            if change["kind"] == "step" and change["unit"] == "By":
                trace(tree, change, given.directory.absolute() / "traced")
    print(_ours("runs", str(runs), "--page", str(given.directory / "history.html")), end="")
    print(_ours("runs", str(runs), "--changes"), end="")


if __name__ == "__main__":
    main()
