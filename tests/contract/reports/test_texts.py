"""What a summary prints can be given to a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from otel_memwatch.reports.summary import _near


@pytest.mark.parametrize(
    "name", [b"run", b"two words", b"it's", b"caf\xe9'\\9", "\u00e9t\u00e9".encode(), b"line\nbreak"]
)
def test_the_path_in_the_summary_can_be_pasted_into_a_shell(name: bytes, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
    typed = _near(path)
    typed.encode()
    told = subprocess.run(["bash", "-c", f"printf %s {typed}"], capture_output=True, check=True).stdout
    assert told == os.fsencode(path)
