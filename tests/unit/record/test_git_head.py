"""The commit of a working directory, from every form in which git stores it, and from files that are none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.record.git_head import git_head

if TYPE_CHECKING:
    from pathlib import Path

COMMIT, OTHER = "a1" * 20, "b2" * 20
ON_MAIN = {"vcs.ref.head.revision": COMMIT, "vcs.ref.head.name": "main"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_branch_a_packed_branch_and_a_commit(tmp_path: Path) -> None:
    inner = tmp_path / "src" / "deep"
    inner.mkdir(parents=True)
    write(tmp_path / ".git/HEAD", "ref: refs/heads/main\n")
    assert git_head(str(inner)) == {}  # no commit yet
    write(tmp_path / ".git/packed-refs", f"# pack-refs\n{OTHER} refs/heads/main2\n{COMMIT} refs/heads/main\n")
    assert git_head(str(inner)) == ON_MAIN
    write(tmp_path / ".git/refs/heads/main", f"{OTHER}\n")
    assert git_head(str(inner))["vcs.ref.head.revision"] == OTHER
    write(tmp_path / ".git/HEAD", f"{COMMIT}\n")
    assert git_head(str(inner)) == {"vcs.ref.head.revision": COMMIT}


def test_a_linked_work_tree_has_the_branch_of_the_common_directory(tmp_path: Path) -> None:
    write(tmp_path / "tree/.git", f"gitdir: {tmp_path}/repository/worktrees/tree\n")
    write(tmp_path / "repository/worktrees/tree/HEAD", "ref: refs/heads/main\n")
    write(tmp_path / "repository/worktrees/tree/commondir", "../..\n")
    write(tmp_path / "repository/refs/heads/main", COMMIT)
    assert git_head(f"{tmp_path}/tree") == ON_MAIN


@pytest.mark.parametrize(
    "head",
    [
        "",
        "ref: ../../etc/passwd",
        "ref: refs/../../secret",
        "ref: refs/heads/a\nb",
        "x" * 50,
        "\x00\xff",
        "g" * 40,
    ],
)
def test_other_text_is_no_commit(tmp_path: Path, head: str) -> None:
    write(tmp_path / ".git/HEAD", head)
    assert git_head(str(tmp_path)) == {}


def test_a_pipe_is_not_waited_for_and_no_repository_is_no_error(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git/HEAD")
    assert git_head(str(tmp_path)) == {}
    assert git_head("/") == {}
