"""Rules of prose. Each finds its violations in one text; code and option names are left out first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.prose.texts import Text

WORDS_OF_A_SENTENCE = 25
WORDS_OF_A_PARENTHESIS = 6
RATES = {
    "what": (re.compile(r"\bwhat\b", re.IGNORECASE), 25),
    "tell": (re.compile(r"\b(?:told|tells?)\b", re.IGNORECASE), 4),
    "nobody": (re.compile(r"\b(?:nobody|somebody|whoever|anybody)\b", re.IGNORECASE), 1),
    "where": (re.compile(r"\bwhere\b", re.IGNORECASE), 20),
    "whose": (re.compile(r"\bwhose\b", re.IGNORECASE), 3),
}
"""Words that are fine once and not as a habit, and how often they may occur in 10 000 words of a kind."""
_BANNED = re.compile(
    r"\b(?:told|tells|nobody|somebody|whoever|anybody|meant|heedless|among it|so that|whose it was|is there"
    r"|at the most|by chance|its own|has that many|that is over|may have had)\b",
    re.IGNORECASE,
)
_START = re.compile(r"\s*(?:What|Whether|Those|That|The same|How|As|Of)\b")
_CODE = re.compile(r"``.*?``|`[^`]*`|\[[^\]\s]*_[^\]\s]*\]", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_NAME = re.compile(
    r"https?://\S+|(?<![\w-])--?[a-z][\w-]*(?:[ =][A-Z]{2,}\b)?"
    r"|\b\w+\(\)?|\b\w*_\w+|\b[\w-]+(?:[./][\w-]+)+/?|(?<!\w)/\w[\w/.-]*"
)
_PART = re.compile(r"\n\s*(?:[-*]|\d+\.)\s|\n\s*\n|\n#+ |\|(?:\s*-+:?\s*\|)*|\n\s{2,}(?=\w+: )")
_RULE = r"^[ \t]*=+(?: +=+)+[ \t]*$"
_TABLE = re.compile(rf"{_RULE}.*?{_RULE}.*?{_RULE}", re.DOTALL | re.MULTILINE)
"""Table of a docstring: a rule, the header, a rule, the rows, a rule."""
_END = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[\"'(*]*(?:[A-Z¤\d]|otel-|wait4))")
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_COUNTED = re.compile(r"[\w¤][\w¤.,'%-]*")
_PARENTHESIS = re.compile(r"\(([^()]*)\)")


class Violation(NamedTuple):
    """A place that breaks a rule."""

    rule: str
    text: Text
    found: str


def prose(text: str) -> str:
    """Return a text without code, links' targets and names; each becomes one placeholder."""
    shown = _LINK.sub(r"\1", _CODE.sub("¤", text))
    return _NAME.sub("¤", shown)


def words(text: str) -> int:
    """Return the number of words of prose."""
    return len(_WORD.findall(prose(text)))


def sentences(text: str) -> list[str]:
    """Return the sentences of a text; list items and table cells are separate."""
    rows = _TABLE.sub(lambda found: found[0].replace("\n", "\n\n"), prose(text))
    parts = _PART.split("\n" + rows)
    return [sentence for part in parts for sentence in _END.split(" ".join(part.split())) if sentence]


def banned(text: Text) -> list[str]:
    """Find words that are never used."""
    return _BANNED.findall(" ".join(prose(text.text).split()))


def starts(text: Text) -> list[str]:
    """Find the first word of a docstring that begins as a clause."""
    found = _START.match(text.text) if text.is_docstring else None
    return [found[0].strip()] if found else []


def long_sentences(text: Text) -> list[str]:
    """Find sentences with too many words."""
    return [one for one in sentences(text.text) if len(_COUNTED.findall(one)) > WORDS_OF_A_SENTENCE]


def long_parentheses(text: Text) -> list[str]:
    """Find parentheses with too many words."""
    shown = " ".join(prose(text.text).split())
    return [one for one in _PARENTHESIS.findall(shown) if len(_COUNTED.findall(one)) > WORDS_OF_A_PARENTHESIS]


def frequent(name: str) -> Callable[[Text], list[str]]:
    """Return a rule that finds one of the words with a limited rate."""
    pattern, _ = RATES[name]
    return lambda text: pattern.findall(prose(text.text))


RULES: dict[str, Callable[[Text], list[str]]] = {
    "banned": banned,
    "starts": starts,
    "long_sentences": long_sentences,
    "long_parentheses": long_parentheses,
    **{name: frequent(name) for name in RATES},
}


def violations(texts: Iterable[Text], excepted: Iterable[str] = ()) -> list[Violation]:
    """Return all violations, without the phrases that are excepted."""
    phrases = [re.compile(r"\s+".join(map(re.escape, phrase.split())), re.IGNORECASE) for phrase in excepted]
    found = []
    for text in texts:
        shown = text.text
        for phrase in phrases:
            shown = phrase.sub("¤", shown)
        checked = text._replace(text=shown)
        checks = {"banned": banned} if text.kind == "tests" else RULES
        found += [Violation(rule, text, one) for rule, find in checks.items() for one in find(checked)]
    return found
