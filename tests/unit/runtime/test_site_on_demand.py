"""Tests of the late run of Python's `site`."""

from __future__ import annotations

import importlib
import site
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from otel_memwatch.runtime import site_on_demand

if TYPE_CHECKING:
    import pytest


class Editable:
    """Finder of a package that is installed editable."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, None, is_package=True) if name == "invented_package" else None


def test_a_finder_that_site_inserts_finds_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.setattr(site, "main", lambda: sys.meta_path.insert(0, Editable))
    site_on_demand.install()
    try:
        assert importlib.import_module("invented_package").__spec__
    finally:
        sys.modules.pop("invented_package", None)
