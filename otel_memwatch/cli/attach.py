"""`attach`: record a process that is running already."""

from __future__ import annotations

import click

from otel_memwatch.cli import say
from otel_memwatch.cli.settings import setting_options
from otel_memwatch.config import settings
from otel_memwatch.monitor.attach import attach


@click.command()
@setting_options("attach")
@click.option(
    "--ready-fd", type=int, hidden=True, help="Descriptor that gets a byte when the first tick is recorded."
)
@click.option("--stop-fd", type=int, hidden=True, help="Descriptor whose end of file ends the recording.")
@click.option("--prepared", is_flag=True, hidden=True, help="The run directory has been made for this run.")
@click.argument("pid", type=int)
def command(pid: int, ready_fd: int | None, stop_fd: int | None, *, prepared: bool, **given: object) -> None:
    """Record process PID and its descendants until it ends, or until Ctrl-C.

    Peaks of the time before are known where the kernel keeps them; the process is not disturbed.
    """
    attach(pid, settings("attach", given), say, ready_fd=ready_fd, stop_fd=stop_fd, prepared=prepared)
