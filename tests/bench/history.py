"""Measures this project's own command at commits spread over its history, and prints the changes.

python -m tests.bench.history DIRECTORY [COMMITS] [--repeat N]

Each commit is checked out into a temporary work tree and runs as plain Python with the installed dependencies. Commits that
fail to run are listed as failed. DIRECTORY receives the runs and the page.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = ("-m", "otel_memwatch", "runs", "--help")
HERE = Path(__file__).parents[2]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True, cwd=HERE).stdout


def main() -> None:
    """Record the commits, oldest first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("commits", type=int, nargs="?", default=60)
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    runs = given.directory.absolute() / "runs"
    # The installed script: with -m, the package of the checked-out commit would record itself.
    ours = [str(Path(sys.executable).with_name("otel-memwatch"))]
    history = _git("rev-list", "--first-parent", "--reverse", "HEAD").split()
    chosen = [
        history[place * (len(history) - 1) // max(1, given.commits - 1)] for place in range(given.commits)
    ]
    with tempfile.TemporaryDirectory() as place:
        tree = f"{place}/tree"
        _git("worktree", "add", "--detach", tree, chosen[0])
        try:
            for commit in dict.fromkeys(chosen):
                subprocess.run(["git", "checkout", "-q", commit], check=True, cwd=tree)
                for _ in range(given.repeat):
                    command = [*ours, "wrap", "--quiet", "--runs", str(runs), "--name", "runs --help", "--"]
                    paths = {"PATH": "/usr/bin:/bin", "HOME": place}
                    program = ["env", f"PYTHONPATH={tree}", sys.executable, *COMMAND]
                    subprocess.run(
                        [*command, *program], check=False, cwd=tree, env=paths, stdout=subprocess.DEVNULL
                    )
        finally:
            _git("worktree", "remove", "--force", tree)
    subprocess.run([*ours, "runs", str(runs), "--page", str(given.directory / "history.html")], check=True)
    subprocess.run([*ours, "runs", str(runs), "--changes"], check=True)


if __name__ == "__main__":
    main()
