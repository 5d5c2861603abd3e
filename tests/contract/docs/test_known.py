"""How each number is known: the page has every rule, with an example and a drawing."""

from __future__ import annotations

import inspect
import re

from otel_memwatch.truth import certainty
from tests.readme.drawings import DRAWINGS
from tests.support.documents import ROOT, blocks

PAGE = ROOT / "docs/known.md"
RULES = {
    name
    for name, one in vars(certainty).items()
    if inspect.isfunction(one) and one.__module__ == certainty.__name__ and not name.startswith("_")
}


def test_every_rule_is_told_and_has_an_example() -> None:
    text = PAGE.read_text()
    examples = "".join(block.text for block in blocks(PAGE) if block.language == "python")
    called = set(re.findall(r"(\w+)\(", examples))
    told = set(re.findall(r"`(\w+)`", text))
    assert {rule for rule in RULES if rule not in told} == set()
    assert RULES - called == set()


def test_every_drawing_is_shown() -> None:
    assert set(re.findall(r"pictures/known/([\w-]+)\.svg", PAGE.read_text())) == set(DRAWINGS)
