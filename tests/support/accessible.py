"""Accessibility of a page by axe, the checker of browsers' developer tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python

_AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")


def violations(page: Any) -> list[str]:
    """What axe reports of an open page, a line each."""
    # The page's policy lets no script in; one that the browser's debugger evaluates is not asked.
    page.evaluate(_AXE)
    found = page.evaluate("axe.run(document)")["violations"]
    return [f"{one['id']}: {one['help']}: {node['html'][:200]}" for one in found for node in one["nodes"]]
