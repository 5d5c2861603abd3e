"""Click options made from the option table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from otel_memwatch.config import OPTIONS

_F = TypeVar("_F", bound=Callable[..., Any])

_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Record", ("out", "runs", "name", "tag", "group", "rank", "upload", "interval", "cgroup", "exact", "stacks", "exact_gpu", "torch_snapshot", "receive_otlp", "strict", "repeat", "warmup")),
    ("Limits and budgets", ("limit", "limit_fallback", "leave", "stalled", "timeout", "kill_after", "limit_exit_code", "warn", "events", "budget", "baseline", "budget_exit_code")),
    (
        "At the end",
        ("quiet", "summary", "summary_file", "step_summary", "termination_log", "report", "page", "plot", "log_dir", "tracker"),
    ),
    (
        "Telemetry",
        (
            "metrics", "operation_metrics", "prometheus", "prometheus_cert", "prometheus_key", "prometheus_client_ca",
            "linger", "textfile", "otlp", "otlp_protocol", "otlp_metrics", "metric_interval",
        ),
    ),
)  # fmt: skip
"""Settings in the order of help. Settings without a group come last."""


class CommandWithSettings(click.Command):
    """Command with groups of options in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        records = {
            parameter.name: record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None and record[1]
        }
        for title, names in _GROUPS:
            listed = [records.pop(name) for name in names if name in records]
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)
        if records:
            with formatter.section("Other"):
                formatter.write_dl(list(records.values()))


def setting_options(command: str) -> Callable[[_F], _F]:
    """Add every option of `command` in the table. Values are passed on unparsed, `None` if not given.

    Values of a repeated option are a tuple.
    """

    def decorate(function: _F) -> _F:
        for option in reversed(OPTIONS.values()):
            if command not in option.commands:
                continue
            if option.metavar is None:
                default = "on" if option.default else "off"
                text = f"{option.help} [{option.variable}; default: {default}]"
                flag = f"{option.flag}/--no-{option.flag[2:]}"
                function = click.option(flag, option.name, default=None, help=text)(function)
                continue
            default = "" if option.default in (None, ()) else f"; default: {option.default}"
            function = click.option(
                *([option.short] if option.short else []),
                option.flag,
                option.name,
                metavar=option.metavar,
                default=None,
                multiple=option.repeated,
                callback=lambda _context, _parameter, value: None if value == () else value,
                help=f"{option.help} [{option.variable}{default}]",
            )(function)
        return function

    return decorate
