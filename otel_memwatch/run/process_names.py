"""Words that distinguish processes of one program: the source file of a compiler, the rank of a worker.

The command lines of a build or of a pool differ in one word. That word stands in their middle, which is cut from a long
line.
"""

from __future__ import annotations

import itertools
import os

from otel_memwatch.runtime.light import defaultdict
from otel_memwatch.runtime.masking import mask_arguments
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

INTERPRETERS = ("python", "perl", "ruby", "node", "sh", "bash", "Rscript")
"""Interpreters: their first argument names the program."""

_FLAGS = frozenset("BEIOPSbdiqsuvx")
"""Options of Python without a value, as in `python -u train.py`."""

_COMPILERS = (
    "cc1", "f951", "lto1", "gcc", "g++", "cc", "c++", "clang", "gfortran", "nvcc", "cicc", "ptxas", "as", "javac", "ghc",
)  # fmt: skip
_SOURCES = (
    ".c", ".cc", ".cpp", ".cxx", ".c++", ".cu", ".m", ".mm", ".s", ".S", ".i", ".ii", ".f", ".f90", ".f95", ".F90", ".java",
    ".hs", ".ptx", ".ll", ".bc", ".o",
)  # fmt: skip
"""Endings of compiler inputs; the first such file of the command line is the source."""

_NAMING = {"rustc": "--crate-name"}
"""Compilers with an option that names their output."""

_TAKES_A_FILE = (
    "-o",
    "-MF",
    "-MT",
    "-MQ",
    "-dumpbase",
    "-dumpbase-ext",
    "-auxbase-strip",
    "-include",
    "-imacros",
)
"""Options before a file that is not the source."""

_COMPARED = 1000
"""Maximum number of compared arguments of a process: some have a megabyte of them."""


def distinguishing_words(argvs: Sequence[Sequence[str] | None]) -> list[tuple[str, ...] | None]:
    """Return the words of each command line that distinguish it, program first; `None` if there is no command line.

    | command line | words |
    | --- | --- |
    | a compiler with a source file | `cc1plus file19.cc` |
    | others of one program and script that differ | program, script, the differing words, each after its option |
    | any other | all of it, without the folders of program and script, and flags of Python before the script |

    Examples of differing words: `python worker.py --rank 1`, and `git fetch origin`. A common first word stays if it is
    the subcommand.

    Likely secrets are masked.
    """
    given = [tuple(argv or ()) for argv in argvs]
    # Once for all forked processes, which share a command line.
    masked = {
        argv: without_folders(mask_arguments(argv[:_COMPARED])) for argv in dict.fromkeys(given) if argv
    }
    lines: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for words in masked.values():
        lines[words[: _head(words)]].add(words)
    # Words that all different lines of a program have, with the smallest count of each.
    common = {head: _in_common(of_head) if len(of_head) > 1 else {} for head, of_head in lines.items()}
    found = {argv: _distinguishing(words, common) for argv, words in masked.items()}
    return [found.get(argv) for argv in given]


def _in_common(lines: Iterable[Iterable[str]]) -> dict[str, int]:
    """Return the words that all lines have, with the smallest count of each."""
    first, *others = [_counts(words) for words in lines]
    return {
        word: min(number, *(counts[word] for counts in others))
        for word, number in first.items()
        if all(word in counts for counts in others)
    }


def _counts(words: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for word in words:
        found[word] += 1
    return found


def _distinguishing(
    words: tuple[str, ...], common: Mapping[tuple[str, ...], dict[str, int]]
) -> tuple[str, ...]:
    """Return the words of one line. `common`: words that the lines of each program have in common."""
    source = _source(words)
    if source:
        return words[0], source
    head = words[: _head(words)]
    rest, left = words[len(head) :], common[head].copy()
    # The subcommand, as in `git fetch origin`.
    verb = [word for word in rest[:1] if left.get(word, 0) > 0 and not word.startswith("-")]
    differing: list[str] = []
    before = ""
    for word in rest:
        if left.get(word, 0) > 0:
            left[word] -= 1
        else:
            # A value is named by the option before it.
            if before.startswith("-") and "=" not in before and not word.startswith("-"):
                differing.append(before)
            differing.append(word)
        before = "" if differing and differing[-1] == word else word
    if not differing or not common[head]:
        return words
    if head[1:] == ("-c",):
        # The program text that follows is the same for all, and long.
        return (*head[:1], *differing)
    return (*head, *verb, *differing)


def without_folders(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words without the folders of program and script, and without the flags of Python before the script."""
    program = os.path.basename(words[0]) or words[0]
    script = 1
    if program.startswith("python"):
        for word in words[1:]:
            if len(word) < 2 or word[0] != "-" or not _FLAGS.issuperset(word[1:]):
                break
            script += 1
    rest = list(words[script:])
    if rest and program.startswith(INTERPRETERS):
        rest[0] = os.path.basename(rest[0]) or rest[0]
    return (program, *rest)


def _head(words: Sequence[str]) -> int:
    """Return the number of words that name the program."""
    if not words[0].startswith(INTERPRETERS) or len(words) == 1:
        return 1
    if words[1] == "-m":
        return min(3, len(words))
    if words[1] == "-c":
        return 2
    return 1 if words[1].startswith("-") else 2


def _source(words: Sequence[str]) -> str:
    """Return the source of a compiler; empty if the program is no compiler, or the source was not found."""
    program = words[0]
    option = _NAMING.get(program)
    if option in words[:-1]:
        return words[words.index(str(option)) + 1]
    if not program.rstrip("0123456789.-").endswith(_COMPILERS) and not program.startswith(_COMPILERS[:3]):
        return ""
    for before, word in itertools.pairwise(words):
        if word.endswith(_SOURCES) and not word.startswith("-") and before not in _TAKES_A_FILE:
            return os.path.basename(word)
    return ""
