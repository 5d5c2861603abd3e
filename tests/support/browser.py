"""Pages in a real Chromium: that of the system, nothing is downloaded."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """The browser's program. Without one the test is skipped, but in CI, where it fails."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: apt-get install chromium")
        pytest.skip("no Chromium")
    return found


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium as playwright's `Browser`."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        # A container has no user namespaces to make a sandbox of, and its /dev/shm is small.
        made = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=120_000
        )
        try:
            yield made
        finally:
            made.close()


CUT_TABLES = """[...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.innerText.slice(0, 80))"""
"""JavaScript: the beginnings of the tables that have to be scrolled sideways."""


class Opened:
    """A page that was opened from a file, with what it asked the network for and what went wrong in it."""

    def __init__(self, browser: Any, path: Path, *, script: str = "", **options: Any) -> None:
        """`script`: JavaScript that runs before the page's."""
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self._context.set_default_timeout(60_000)
        self._context.add_init_script(script)
        self.page = self._context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console", lambda message: self.errors.append(message.text) if message.type == "error" else None
        )
        self.page.on("dialog", lambda dialog: (self.errors.append("a dialog"), dialog.dismiss()))
        self.page.goto(path.as_uri())

    def wait(self) -> Opened:
        """Waits until the page's script has put everything in its place."""
        self.page.wait_for_selector("html[data-ready]", state="attached")
        return self

    def close(self) -> None:
        self._context.close()
