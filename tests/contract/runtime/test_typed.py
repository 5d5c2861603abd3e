"""What is imported before the command runs."""

from __future__ import annotations

import subprocess
import sys


def test_a_wrapped_command_waits_for_little() -> None:
    """What is imported before the command is forked."""
    script = (
        "import sys; import otel_memwatch.monitor.run.wrap, otel_memwatch.cli.fast_args; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {
        "typing",
        "click",
        "logging",
        "subprocess",
        "threading",
        "json",
        "platform",
        "asyncio",
        "inspect",
    }
    assert not heavy & set(done.stdout.split())
