"""The version stands in one place, and the installed and the printed one agree with it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import otel_memwatch

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
NEWS = CHANGELOG.parent / "changes"


def headings() -> list[str]:
    return re.findall(r"^## (.+)$", CHANGELOG.read_text(), re.MULTILINE)


def test_what_is_installed_has_the_version_of_the_package() -> None:
    assert metadata.version("otel-memwatch") == otel_memwatch.__version__


def test_news_of_the_next_release_are_files_of_a_known_kind() -> None:
    names = [path.name for path in NEWS.glob("*") if path.name != "template.md"]
    assert all(re.fullmatch(r"[a-z0-9.-]+\.(added|changed|removed|fixed)\.md", name) for name in names), names


def test_the_changelog_begins_with_this_version_and_has_each_once() -> None:
    names = [heading.split()[0] for heading in headings()]
    assert names[0] == otel_memwatch.__version__
    assert len(set(names)) == len(names)
    versions = [tuple(map(int, name.split("."))) for name in names]
    assert versions == sorted(versions, reverse=True), "the newest comes first"
