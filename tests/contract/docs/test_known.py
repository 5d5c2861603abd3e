"""How each number is known: the page has every rule, with an example and a drawing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

from otel_memwatch import truth
from tests.readme.drawings import DRAWINGS
from tests.support.documents import ROOT, blocks

PAGE = ROOT / "docs/known.md"
NO_RULES = {"exact", "ranks"}
"""Modules whose functions are no rules of a run: constructors, and sums over several runs."""
RULES = {
    name
    for module in pkgutil.iter_modules(truth.__path__, f"{truth.__name__}.")
    if module.name.rpartition(".")[2] not in NO_RULES
    for name, one in vars(importlib.import_module(module.name)).items()
    if inspect.isfunction(one) and one.__module__ == module.name and not name.startswith("_")
}


def test_every_rule_is_reported_and_has_an_example() -> None:
    text = PAGE.read_text()
    examples = "".join(block.text for block in blocks(PAGE) if block.language == "python")
    called = set(re.findall(r"(\w+)\(", examples))
    told = set(re.findall(r"`(\w+)`", text))
    assert {rule for rule in RULES if rule not in told} == set()
    assert RULES - called == set()


def test_every_drawing_is_shown() -> None:
    assert set(re.findall(r"pictures/known/([\w-]+)\.svg", PAGE.read_text())) == set(DRAWINGS)
