"""What processes are called so that each can be told from its neighbours: by the argument in which they differ.

Sixteen compilers have the same program, the same fifty options and one source file each; a pool of workers has nothing but
its order. A name that is cut in the middle of a command line hides just that word.
"""

from __future__ import annotations

import os
from collections import Counter

from otel_memwatch.reports.formatting import clean, shorten
from otel_memwatch.runtime.masking import mask_arguments
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.analysis import ProcessFigures

_SOURCES = (
    ".c", ".cc", ".cpp", ".cxx", ".c++", ".cu", ".f", ".f90", ".go", ".hs", ".java", ".jl", ".js", ".kt", ".m", ".ml", ".py",
    ".r", ".rs", ".s", ".scala", ".sh", ".swift", ".ts", ".zig",
)  # fmt: skip
"""Endings of files that somebody wrote: the best name for what works on one."""

_INTERPRETERS = ("python", "perl", "ruby", "node", "sh", "bash", "dash", "zsh", "Rscript", "java", "julia")
_LONGEST = 400
"""Arguments that are looked at: of a command line of megabytes the beginning is enough."""


def process_names(processes: Sequence[ProcessFigures], width: int = 48) -> list[str]:
    """A name for each process, in their order: the program, and what distinguishes it among those of the same program.

    ================================================  =======================
    alone with its program                            "make", "train.py"
    other arguments than the others                   "cc1plus parser.cc"
    the same arguments as others, as forked workers   "train.py #2"
    not known                                         "[kworker]", "pid 812"
    ================================================  =======================
    """
    words = [_words(process) for process in processes]
    bases = [_base(process, argv) for process, argv in zip(processes, words, strict=True)]
    alike: dict[str, list[int]] = {}
    for index, base in enumerate(bases):
        alike.setdefault(base, []).append(index)
    names = list(bases)
    for base, members in alike.items():
        if len(members) > 1:
            for index, name in _distinguished(base, members, words, width):
                names[index] = name
    return [shorten(name, width) for name in names]


def _words(process: ProcessFigures) -> list[str]:
    return mask_arguments([word[:4096] for word in (process.argv or ())[:_LONGEST]])


def _base(process: ProcessFigures, argv: Sequence[str]) -> str:
    """The program; of an interpreter, the script or module that it runs."""
    if not argv:
        return f"[{clean(process.command)}]" if process.command else f"pid {process.pid}"
    program = os.path.basename(argv[0]).lstrip("-") or argv[0]
    if program.startswith(_INTERPRETERS):
        for index, word in enumerate(argv[1:], 1):
            if word == "-m" and index + 1 < len(argv):
                return clean(argv[index + 1])
            if word in ("-c", "-e"):
                return f"{program} {word}"
            if not word.startswith("-"):
                return clean(os.path.basename(word) or word)
    return clean(program)


def _distinguished(
    base: str, members: Sequence[int], words: Sequence[Sequence[str]], width: int
) -> list[tuple[int, str]]:
    """Names of processes of one program: each with the word that fewest of the others have, a source file before all."""
    owners = Counter(word for index in members for word in set(words[index][1:]))
    found = []
    for index in members:
        telling = [word for word in words[index][1:] if owners[word] < len(members)]
        best = min(
            enumerate(telling),
            key=lambda item: (_is_temporary(item[1]), owners[item[1]], not _is_source(item[1]), item[0]),
            default=None,
        )
        found.append((index, base if best is None else f"{base} {_brief(best[1], width - len(base) - 1)}"))
    times = Counter(name for _, name in found)
    numbers: Counter[str] = Counter()
    numbered = []
    for index, name in found:
        numbers[name] += 1
        numbered.append((index, f"{name} #{numbers[name]}" if times[name] > 1 else name))
    return numbered


def _is_source(word: str) -> bool:
    return word.lower().endswith(_SOURCES) and not word.startswith("-")


def _is_temporary(word: str) -> bool:
    return "/tmp/" in word or "/var/tmp/" in word  # noqa: S108 - no file is made there


def _brief(word: str, width: int) -> str:
    """The word, of a path its end, where it does not fit."""
    text = clean(word)
    if len(text) > width and "/" in text:
        text = os.path.basename(text.rstrip("/")) or text
    return text
