"""Texts that are compared with files of tests/golden; `UPDATE_GOLDEN=1` writes them anew, the diff is the review."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"


def check_golden(name: str, text: str, **replaced: object) -> None:
    """Compares `text` with the golden file `name`; each of `replaced` is shown as its keyword in capitals."""
    for word, found in replaced.items():
        text = text.replace(str(found), word.upper())
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing: run once with UPDATE_GOLDEN=1"
    expected = path.read_text(encoding="utf-8")
    assert text == expected, f"{name} differs: look at it, then run with UPDATE_GOLDEN=1"
