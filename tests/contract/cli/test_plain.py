"""The command starts before Click is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


def test_click_is_not_loaded_before_the_command_runs(tmp_path: Any) -> None:
    """Nor is anything else that a start need not wait for."""
    code = """if True:
        import os, sys
        from otel_memwatch import cli
        from otel_memwatch.monitor import wrap
        def launch(*arguments, **rest):
            heavy = {"click", "inspect", "asyncio", "subprocess", "logging", "dataclasses", "json", "threading"}
            print(sorted(heavy & set(sys.modules)), flush=True)
            os._exit(0)
        wrap.launch = launch
        cli.main()
    """
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, "wrap", "--out", str(tmp_path / "run"), "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[]", done.stderr
