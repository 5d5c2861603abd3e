"""Masks for secrets in displayed commands: values of options with telling names, and passwords in URLs.

The masks are guesses by name, for screens, logs and pictures. Exported data does not depend on them, because it contains
no argument except a script's name.
"""

from __future__ import annotations

import itertools
import os

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


MASK = "***"

_LOWER, _UPPER = frozenset("abcdefghijklmnopqrstuvwxyz"), frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")

_ALWAYS = frozenset(
    {
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "secrets",
        "credential",
        "credentials",
        "authorization",
        "apikey",
    }
)
_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key")}
)
_NO_SECRET_TOKENS = frozenset(
    {"pad", "eos", "bos", "unk", "mask", "sep", "cls", "special", "image", "stop", "max", "min", "next", "per", "first",
     "last", "start", "end", "new", "split", "delimiter"}
)  # fmt: skip
"""Words before "token" in options of language models, which are not secrets."""

_SCRIPTS = (
    ".py",
    ".sh",
    ".bash",
    ".js",
    ".mjs",
    ".rb",
    ".pl",
    ".r",
    ".jl",
    ".lua",
    ".php",
    ".ipynb",
    ".jar",
    ".exe",
)

_ASSIGNED = (
    r"(?<![A-Za-z0-9_.-])[0-9_.-]*([A-Za-z][A-Za-z0-9_.-]*)(?:=|: ?)(?:(?:Bearer|Basic)\s+)?([^\s&'\";]+)"
)
"""A name, an assignment sign, and a value. It matches only at the beginning of a word. Matching from every letter
would take half a minute for an argument of 64 000 letters."""

_USER_INFO = r"(://[^/@\s:]*):[^/\s]*@"
"""User and password in a URL. The password ends at the last @ before the path."""


def mask_arguments(argv: Sequence[str]) -> list[str]:
    """Return the same number of arguments, with three stars for likely secrets."""
    masked = []
    hidden = False
    for word in argv:
        is_option = word.startswith("-")
        masked.append(MASK if hidden and not is_option else _masked(word))
        hidden = is_option and "=" not in word and _is_secret(word.lstrip("-"))
    return masked


def mask_url(url: str) -> str:
    """Return the URL without its password."""
    if "://" not in url:
        return url
    import re

    return re.sub(_USER_INFO, rf"\1:{MASK}@", url)


def _masked(word: str) -> str:
    if "=" not in word and ":" not in word:
        return word
    import re

    def mask_value(found: re.Match[str]) -> str:
        whole = found[0]
        return whole[: found.start(2) - found.end()] + MASK if _is_secret(found[1]) else whole

    return re.sub(_ASSIGNED, mask_value, mask_url(word))


def public_name(argv: Sequence[str]) -> str:
    """Return a command's name for export: its program, and its first argument if that is a script."""
    if not argv:
        return ""
    names = [(os.path.basename(argv[0]) or argv[0]).removesuffix(":")]  # of the title "nginx: master process"
    names += [
        os.path.basename(word) for word in argv[1:2] if word.lower().endswith(_SCRIPTS) and "=" not in word
    ]
    return " ".join(names)


def _is_secret(name: str) -> bool:
    """Return whether the name of an option or a variable indicates a secret."""
    # No regular expression: most commands have an option, and importing `re` takes 3 ms.
    parted = "".join(
        f"_{letter}" if before in _LOWER and letter in _UPPER else letter
        for before, letter in itertools.pairwise(f" {name}")
    )
    parts = parted.lower().replace("-", "_").replace(".", "_").split("_")
    words = [part for number, part in enumerate(parts) if part or number in (0, len(parts) - 1)]
    if _ALWAYS & set(words) or any(pair in _PAIRS for pair in itertools.pairwise(words)):
        return True
    return words[-1] == "token" and not _NO_SECRET_TOKENS & set(words)
