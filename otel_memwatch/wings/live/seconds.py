"""Type of options in seconds. Stdlib and Click only: `demo` loads it too."""

from __future__ import annotations

from typing import Any

import click

from otel_memwatch import units


class Seconds(click.FloatRange):
    """Seconds within a range, also with a unit like all durations: "500ms", "2min"."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return seconds; fail on anything that is no duration."""
        if isinstance(value, str):
            try:
                value = units.parse_duration(value)
            except ValueError as error:
                self.fail(f"{error}.", param, ctx)
        return super().convert(value, param, ctx)
