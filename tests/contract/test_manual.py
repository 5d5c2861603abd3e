"""The manual pages, as groff sees them."""

from __future__ import annotations

import subprocess

import pytest
from click.testing import CliRunner

from otel_memwatch.cli import COMMANDS
from otel_memwatch.cli.command_group import cli
from tests.support.peers import needed


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS)])
def test_manual_pages_are_without_fault(words: tuple[str, ...]) -> None:
    page = CliRunner().invoke(cli, ["man", *words]).output
    assert page.startswith('.TH "OTEL\\-MEMWATCH')
    groff = [needed("groff"), "-man", "-ww", "-Tutf8"]
    done = subprocess.run(groff, input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "otel-memwatch" in done.stdout
