"""Fixtures of several tests of whole programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import browser


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    """A browser."""
    with browser() as made:
        yield made
