"""Ends of commands."""

from __future__ import annotations

from otel_memwatch.model import ChildExit


def ended(exit_code: int | None = None, signal: int | None = None) -> ChildExit:
    """A command that ended so, without further figures."""
    figures = dict.fromkeys(ChildExit._fields)
    return ChildExit(**{**figures, "exit_code": exit_code, "signal": signal, "main": True})  # type: ignore[arg-type]
