"""Help texts of the options of `pytest --memwatch`."""

from __future__ import annotations

import argparse

from otel_memwatch.plugins.pytest.options import pytest_addoption


class Parser:
    """pytest's parser with one group, which is argparse's."""

    def __init__(self):
        self.group = argparse.ArgumentParser(prog="pytest")
        self.group.addoption = self.group.add_argument
        self.ini = {}

    def getgroup(self, _name, _description):
        return self.group

    def addini(self, name, text, **_more):
        self.ini[name] = text


def test_every_help_text_can_be_formatted(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # no word is broken
    parser = Parser()
    pytest_addoption(parser)
    shown = " ".join(parser.group.format_help().split())
    actions = [action for action in parser.group._actions if action.dest != "help"]
    assert len(actions) == 9
    for action in actions:
        assert action.help % {} in shown
    assert 'such as "+5%"' in shown


def test_ini_values_have_the_text_of_their_options():
    parser = Parser()
    pytest_addoption(parser)
    assert len(parser.ini) == 9
    assert parser.ini["memwatch_fail"].endswith('such as "+5%"')
    assert not any("%%" in text for text in parser.ini.values())
