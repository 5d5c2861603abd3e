"""The version stands in one place, and what is installed and told agrees with it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import otel_memwatch

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def headings() -> list[str]:
    return re.findall(r"^## (.+)$", CHANGELOG.read_text(), re.MULTILINE)


def test_what_is_installed_has_the_version_of_the_package() -> None:
    assert metadata.version("otel-memwatch") == otel_memwatch.__version__


def test_the_changelog_begins_with_what_is_unreleased_or_with_this_version() -> None:
    assert re.fullmatch(
        rf"Unreleased|{re.escape(otel_memwatch.__version__)}( - \d{{4}}-\d\d-\d\d)?", headings()[0]
    )


def test_the_changelog_tells_of_this_version_and_of_each_once() -> None:
    names = [heading.split()[0] for heading in headings()]
    assert otel_memwatch.__version__ in names
    assert len(set(names)) == len(names)
    versions = [tuple(map(int, name.split("."))) for name in names if name != "Unreleased"]
    assert versions == sorted(versions, reverse=True), "the newest comes first"
