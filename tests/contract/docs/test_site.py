"""The manual as a site: built without a warning, whole, and without a network when it is looked at."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.documents import ROOT

LOADED = re.compile(r"<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href)=[\"']?([^\"' >]+)")
LINKED = re.compile(r"<a\b[^>]*?\bhref=[\"']?([^\"' >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    variables = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_it_loads_nothing_from_elsewhere_and_its_links_lead_somewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    texts = {page.resolve(): page.read_text() for page in pages}
    for page, text in texts.items():
        if page.name == "404.html":
            continue  # its addresses are those of the server's root
        for address in LOADED.findall(text) + LINKED.findall(text):
            parts = urlsplit(address)
            if parts.scheme:
                assert address not in LOADED.findall(text), f"{page.name} loads {address}"
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.exists(), f"{page.name}: {address}"
            if parts.fragment and target in texts:
                assert re.search(rf'\bid=["\']?{re.escape(unquote(parts.fragment))}["\' >]', texts[target]), (
                    address
                )


def test_styles_and_scripts_load_nothing_either(site: Path) -> None:
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        assert not re.search(r"url\([\"']?https?:|@import", style.read_text()), style.name
