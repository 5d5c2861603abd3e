"""Lazy names of packages exist where they are loaded from."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "package",
    ["otel_memwatch", "otel_memwatch.api", "otel_memwatch.in_target.operations", "otel_memwatch.run"],
)
def test_every_public_name_loads(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
