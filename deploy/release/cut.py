"""Cut a release: move the news of `changes/` to CHANGELOG, and set the version in every file.

Usage:

    python deploy/release/cut.py 0.2.0         change the files; check them, commit, then tag v0.2.0
    python deploy/release/cut.py --notes       print the CHANGELOG section of the version, for the release page
    python deploy/release/cut.py --check TAG   fail unless the tag matches the version and CHANGELOG has it
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION_FILE = ROOT / "otel_memwatch/_version.py"
CHANGELOG = ROOT / "CHANGELOG.md"
NEWS = ROOT / "changes"


def version() -> str:
    """Return the version, from its only place."""
    found = re.search(r'^__version__ = "([^"]+)"$', VERSION_FILE.read_text(), re.MULTILINE)
    assert found, VERSION_FILE
    return found[1]


def notes(of: str) -> str:
    """Return the section of a version."""
    found = re.search(
        rf"^## {re.escape(of)}\b[^\n]*\n(.*?)(?=^## |\Z)", CHANGELOG.read_text(), re.MULTILINE | re.DOTALL
    )
    return found[1].strip() if found else ""


def cut(new: str) -> str | None:
    """Change the files, or return the reason against it."""
    old = version()
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", new):
        return f"{new} is no version: 1.2.3, or 1.2.3rc1"
    if not list(NEWS.glob("*.*.md")):
        return "changes/ has no news of a change"
    if notes(new):
        return f"CHANGELOG.md has a section {new} already"
    VERSION_FILE.write_text(
        VERSION_FILE.read_text().replace(f'__version__ = "{old}"', f'__version__ = "{new}"')
    )
    subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--yes", "--version", new], cwd=ROOT, check=True
    )
    listed = subprocess.run(
        ["git", "ls-files", "-z", "deploy"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        content = path.read_text()
        if f"otel-memwatch:{old}" in content:
            path.write_text(content.replace(f"otel-memwatch:{old}", f"otel-memwatch:{new}"))
    return None


def check(tag: str) -> str | None:
    """Return the reason if a tag is not a release."""
    if tag.removeprefix("refs/tags/") != f"v{version()}":
        return f"the tag is {tag}, the version {version()}"
    return None if notes(version()) else f"CHANGELOG.md has no section {version()}"


def main() -> int:
    """Command line."""
    wrong: str | None = None
    if sys.argv[1:] == ["--notes"]:
        print(notes(version()))
    elif len(sys.argv) == 3 and sys.argv[1] == "--check":
        wrong = check(sys.argv[2])
    elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        wrong = cut(sys.argv[1])
    else:
        wrong = __doc__
    if wrong:
        print(wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
