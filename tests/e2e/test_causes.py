"""`compare` says why memory differs: pairs of real programs with a known cause, and some without one."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.bench.causes import PAIRS, Pair, judge, record
from tests.support.wrapped import PROGRAM, environment

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ("a larger batch", "a new operation", "a library that maps more", "a larger constant")
BY_NAME = {pair.name: pair for pair in PAIRS}


@pytest.mark.parametrize("name", QUICK)
def test_the_cause_is_named(tmp_path: Path, name: str) -> None:
    good, words = judge(BY_NAME[name], tmp_path)
    assert good, words


@pytest.mark.thorough
@pytest.mark.parametrize(
    "pair",
    # Without a cgroup, page tables are read only if resident memory grows with them. Captures of stacks need a quiet machine.
    [pair for pair in PAIRS if pair.name not in (*QUICK, "more page tables") and not pair.options],
    ids=lambda pair: pair.name,
)
def test_every_cause_is_named(tmp_path: Path, pair: Pair) -> None:
    good, words = judge(pair, tmp_path)
    if not good:  # a busy machine may delay a sample past the peak
        good, words = judge(pair, tmp_path / "again")
    assert good, words


def test_table_json_and_markdown_have_the_cause(tmp_path: Path) -> None:
    pair = BY_NAME["a new operation"]
    base, head = record(tmp_path, "base", pair.base), record(tmp_path, "head", pair.head)

    def compared(form: str) -> str:
        command = [*PROGRAM, "compare", str(base), str(head), "--format", form]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    why = json.loads(compared("json"))["why"]
    assert why["explained"]
    assert why["change"] == sum(one["bytes"] for one in why["causes"]) + why["rest"]
    for form in ("table", "markdown"):
        text = compared(form).replace("\\_", "_")
        assert "Why memory differs:" in text
        assert "in load_tokenizer (operation), only in the head" in text
