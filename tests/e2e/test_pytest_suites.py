"""Suites of others run unchanged with `pytest --memwatch`, and of 1 000 planted peaks each is found: the long profile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench" / "bench_pytest.py"


@pytest.mark.skipif(
    "MEMWATCH_LONG" not in os.environ, reason="takes ten minutes, and downloads; MEMWATCH_LONG=1"
)
@pytest.mark.parametrize("what", ["suites", "planted"])
def test_all_is_as_it_should_be(what: str) -> None:
    done = subprocess.run([sys.executable, BENCH, what], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
