"""What is imported before the command runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_BEFORE_THE_COMMAND = 41
"""Modules of this package; each takes 0.3 ms."""


def test_a_wrapped_command_waits_for_little() -> None:
    """What is imported before the command is forked."""
    script = (
        "import sys; import otel_memwatch.monitor.run.wrap, otel_memwatch.cli.fast_args, otel_memwatch.wings.gate.project, "
        "otel_memwatch.monitor.run_cgroup.own_cgroup; print(*sys.modules)"
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
        "dataclasses",
        "tempfile",
        "shutil",
    }
    loaded = set(done.stdout.split())
    assert not heavy & loaded
    ours = sorted(name for name in loaded if name.startswith("otel_memwatch"))
    assert len(ours) <= MOST_BEFORE_THE_COMMAND, ours


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_waits_for_less(word: str) -> None:
    """What the program loads beside a bare interpreter, of which some start with `re` or `contextlib` already."""
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    script = (
        "import sys; from otel_memwatch.cli import main; sys.argv = ['otel-memwatch', sys.argv[1]]\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, word], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split()) - set(bare.stdout.split())
    assert not loaded & {"click", "re", "enum", "signal", "contextlib", "json", "pathlib"}
    assert len([name for name in loaded if name.startswith("otel_memwatch")]) <= 9, sorted(loaded)
    assert done.stdout.startswith(("Usage: otel-memwatch", "otel-memwatch, version"))
