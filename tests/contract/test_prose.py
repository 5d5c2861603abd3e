"""Package, documents and help keep the rules of tests/prose; the limits of tests/prose only go down."""

from __future__ import annotations

import pytest

from tests.prose import limits, rules
from tests.prose.texts import PACKAGE, Text, all_texts, document_texts, help_texts, python_texts

WHOLE = (PACKAGE / "ARCHITECTURE.md").exists()
"""Whether this machine has the sources, and not only an installed wheel."""


def text(words: str, *, is_docstring: bool = False) -> Text:
    return Text("docs", "docs", "a page", words, is_docstring=is_docstring)


@pytest.mark.parametrize(
    ("rule", "words", "count"),
    [
        ("banned", "The report tells nobody.", 2),
        ("banned", "It waits, so\nthat the record is complete.", 1),
        ("banned", "Run `whoever tells` and `--told`.", 0),
        ("banned", "See [the log](nobody-told.md).", 0),
        ("banned", "Pass told_by or --is-there.", 0),
        ("what", "What is it? What?", 2),
        ("where", "Where it fails", 1),
        ("tell", "I tell you.", 1),
        ("whose", "A file whose name", 1),
        ("long_sentences", "word " * 25 + ".", 0),
        ("long_sentences", "word " * 26 + ".", 1),
        ("long_sentences", "word " * 20 + "end. Word " + "word " * 20, 0),
        ("long_sentences", "- " + "word " * 20 + "\n- " + "word " * 20, 0),
        ("long_sentences", "| " + "word " * 20 + "| " + "word " * 20 + "|", 0),
        ("long_parentheses", "It (one two three four five six) works.", 0),
        ("long_parentheses", "It (one two three four five six seven) works.", 1),
    ],
)
def test_a_rule_counts_its_violations(rule: str, words: str, count: int) -> None:
    assert len(rules.RULES[rule](text(words))) == count


@pytest.mark.parametrize(
    ("words", "is_docstring", "found"),
    [
        ("What it does.", True, ["What"]),
        ("The same as before.", True, ["The same"]),
        ("Of a group, its peak.", True, ["Of"]),
        ("Offsets in bytes.", True, []),
        ("Return the peak.", True, []),
        ("What it does.", False, []),
    ],
)
def test_a_docstring_does_not_begin_as_a_clause(words: str, is_docstring: bool, found: list[str]) -> None:
    assert rules.starts(text(words, is_docstring=is_docstring)) == found


def test_docstrings_and_comments_are_found() -> None:
    source = '''"""Module."""
SIZE = 1
"""Bytes."""
# one
# comment
def run():
    """Run it."""
    return 1  # noqa: X
'''
    found = [
        (one.place, one.text, one.is_docstring) for one in python_texts(source, "package", "cli", "m.py")
    ]
    assert found == [
        ("m.py:1", "Module.", True),
        ("m.py:3", "Bytes.", True),
        ("m.py:7", "Run it.", True),
        ("m.py:4", "one\ncomment", False),
    ]


def test_a_phrase_can_be_excepted() -> None:
    texts = [text("The option is called so that.")]
    assert [one.rule for one in rules.violations(texts)] == ["banned"]
    assert rules.violations(texts, ["called so\nthat"]) == []


def test_no_text_exceeds_its_limits() -> None:
    texts = list(all_texts() if WHOLE else [*document_texts(), *help_texts()])
    assert limits.check(texts, rules.violations(texts, limits.excepted())) == []


def test_each_exception_has_a_reason_and_is_needed() -> None:
    texts, listed = list(all_texts()), limits.exceptions()
    phrases = [each["phrase"] for each in listed]
    assert [each["phrase"] for each in listed if len(each["reason"].split()) < 3] == []
    found = len(rules.violations(texts, phrases))
    without = {phrase: [other for other in phrases if other != phrase] for phrase in phrases}
    assert (
        not WHOLE
        or [phrase for phrase, others in without.items() if len(rules.violations(texts, others)) <= found]
        == []
    )


def test_limits_are_lowered_and_never_raised() -> None:
    before = {"package.cli": {"banned": 3, "starts": 2, "what": 4}, "package.gone": {"banned": 1}}
    counts = {"package.cli": {"banned": 5, "starts": 1, "what": 0}}
    after = limits.lowered(counts, before)
    assert after == {"package.cli": {"banned": 3, "starts": 1}}
    assert "banned = 3\nstarts = 1\n" in limits.written(after)
