"""Subject lines of commits, from the repository around the current directory.

git starts no other program for this: no hook belongs to `log`, signatures are not verified, and a partial clone fetches nothing.
"""

from __future__ import annotations

import os
import re
import subprocess

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SECONDS = 10.0
_ARGUMENTS = (
    "git", "-c", "log.showSignature=false", "-c", "core.fsmonitor=false", "--no-pager",
    "log", "--no-walk", "--ignore-missing", "--no-notes", "--no-patch", "--no-color", "--format=%H %s", "--stdin",
)  # fmt: skip


def subjects(commits: Iterable[str]) -> dict[str, str]:
    """Return the subjects of those commits that the repository has; none without git or a repository."""
    wanted = sorted({commit for commit in commits if _COMMIT.fullmatch(commit)})
    if not wanted:
        return {}
    environment = os.environ | {"GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            _ARGUMENTS, input="\n".join(wanted).encode(), capture_output=True, timeout=_SECONDS, check=False,
            env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = (line.partition(" ") for line in done.stdout.decode("utf-8", "replace").split("\n"))
    return {commit: subject for commit, _, subject in lines if subject}
