"""Key of a command without its arguments: program, script or module, subcommand.

Runs with the same key are runs of one job with different arguments: `python train.py --lr 1` and
`python3.11 ./train.py --lr 2`. This module imports nothing slow, because the command waits while the default name of its
run directory is derived from the key.
"""

from __future__ import annotations

import os

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_INTERPRETERS = {
    "python": ".py", "pypy": ".py", "node": ".js", "ruby": ".rb", "perl": ".pl", "Rscript": ".R", "julia": ".jl",
    "deno": ".ts", "php": ".php", "lua": ".lua",
}  # fmt: skip
"""Programs that run scripts, with the usual extension of the scripts."""
_WITH_VALUE = {
    "python": ("-W", "-X", "--check-hash-based-pycs"),
    "node": ("-r", "--require", "--import", "--loader"),
    "perl": ("-I", "-M"),
    "ruby": ("-I", "-r"),
}
"""Options of interpreters with a value in a separate word."""
_WITH_SUBCOMMANDS = frozenset(
    {
        "git", "cargo", "go", "npm", "yarn", "pnpm", "docker", "podman", "kubectl", "pip", "uv", "poetry", "conda", "mamba",
        "samtools", "bcftools", "bedtools", "bwa", "gatk", "dotnet", "bazel", "terraform", "helm", "dvc", "dbt", "ninja",
        "snakemake", "nextflow", "airflow", "otel-memwatch", "apt", "apt-get", "systemctl", "zig", "swift", "mvn", "gradle",
    }
)  # fmt: skip
"""Programs with a subcommand as first word that is not an option."""
_TEXT_BY_E = frozenset({"perl", "ruby", "node"})
"""Interpreters that take a program's text by `-e`; the others take it by `-c`."""
_LAUNCHERS = {
    "env": ("-u", "-C"), "nice": (), "nohup": (), "time": ("-f", "-o"), "stdbuf": ("-i", "-o", "-e"), "ionice": (), "chrt": (),
    "setsid": (), "exec": ("-a",), "timeout": ("-s", "-k"), "taskset": ("-c",), "numactl": ("-N", "-m", "-C", "-i", "-p"),
}  # fmt: skip
"""Programs that run the rest of their arguments, with their options that have a value in a separate word."""
_SAID_FIRST = frozenset(
    {
        "cd", "set", "export", "source", ".", "exec", "ulimit", "umask", "trap", "echo", "(", "for", "while", "until", "if",
        "case", "[", "test", "exit", "true", ":", "wait", "done", "fi",
    }
)  # fmt: skip
"""First words of shell lines that do not identify the job."""

_SHELL_SIGNS = frozenset(";|&<>$`(){}*?'\"\\\n#~=")
"""Characters that make a shell's text more than one simple command."""
_LONGEST = 160
"""Maximum number of characters of a text (`sh -c TEXT`) in a key. A longer text gets a checksum."""


def command_key(argv: Sequence[str]) -> str:
    """Return the key of a command: "train.py", "pytest", "git log", "make". For `sh -c TEXT`, the text is the program."""
    words = _without_launcher(argv)
    if not words:
        return ""
    program = _program(words[0])
    if program in _SHELLS or program in _INTERPRETERS:
        kind, what = _interpreted(program, words[1:])
        if kind == "text":
            if program in _SHELLS and not _SHELL_SIGNS & set(what) and what.split():
                return command_key(what.split())  # a single command, which the shell only starts
            option = "-e" if program in _TEXT_BY_E else "-c"
            return f"{program} {option} {_shortened(what)}"
        return what or program
    if program == "java":
        return _java(words[1:])
    if program in _WITH_SUBCOMMANDS:
        subcommand = next((word for word in words[1:] if not word.startswith("-")), "")
        return f"{program} {subcommand}" if subcommand.replace("-", "").isalnum() else program
    return program


def command_label(argv: Sequence[str]) -> str:
    """Return a short label for users: "train" for `python train.py`, "sort" for `sh -c 'sort x | uniq'`."""
    words = _without_launcher(argv)
    if not words:
        return ""
    program = _program(words[0])
    if program in _SHELLS or program in _INTERPRETERS:
        kind, what = _interpreted(program, words[1:])
        if kind == "text":
            return (_first_program(what) if program in _SHELLS else "") or program
        if kind == "script":
            ending = _INTERPRETERS.get(program, ".sh")
            return what.removesuffix(ending) or program
        return what or program
    return command_key(words)


def _program(word: str) -> str:
    """Return a program's name without its path, and for an interpreter without its version: "python" for python3.11."""
    name = os.path.basename(word) or word
    bare = name.rstrip("0123456789.")
    return bare if bare in _INTERPRETERS else name


def _without_launcher(argv: Sequence[str]) -> list[str]:
    words = list(argv)
    while len(words) > 1 and (valued := _LAUNCHERS.get(os.path.basename(words[0]))) is not None:
        rest = words[1:]
        while rest and (rest[0].startswith("-") or "=" in rest[0] or _is_number(rest[0])):
            rest = rest[2 if rest[0] in valued else 1 :]
        if not rest:
            break
        words = rest
    return words


def _is_number(word: str) -> bool:
    """Return whether a word is a number, a duration ("1.5h"), or a mask of processors ("0x3")."""
    return word.rstrip("smhd").replace(".", "").isdigit() or word.startswith("0x")


def _interpreted(program: str, rest: Sequence[str]) -> tuple[str, str]:
    """Return kind and name of an interpreter's program: text, module or script. Both are empty without one."""
    valued = _WITH_VALUE.get(program, ())
    index = 0
    while index < len(rest):
        word = rest[index]
        if program == "python" and word == "-m":
            return "module", rest[index + 1] if index + 1 < len(rest) else ""
        text = word == ("-e" if program in _TEXT_BY_E else "-c")
        if program == "node":
            text = word in ("-e", "--eval", "-p")
        if program in _SHELLS and word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            text = True  # `bash -lc`
        if text:
            return "text", rest[index + 1] if index + 1 < len(rest) else ""
        if not word.startswith("-") or word == "-":
            return "script", "" if word == "-" else os.path.basename(word)
        if word == "--":
            return "script", os.path.basename(rest[index + 1]) if index + 1 < len(rest) else ""
        index += 2 if word in valued else 1
    return "", ""


def _java(rest: Sequence[str]) -> str:
    index = 0
    while index < len(rest):
        word = rest[index]
        if word == "-jar":
            return f"java {os.path.basename(rest[index + 1])}" if index + 1 < len(rest) else "java"
        if not word.startswith("-"):
            return f"java {os.path.basename(word)}"  # a class, or a source file
        index += 2 if word in ("-cp", "-classpath", "--class-path", "-p", "--module-path") else 1
    return "java"


def _shortened(text: str) -> str:
    plain = " ".join(text.split())
    if len(plain) <= _LONGEST:
        return plain
    import zlib

    return f"{plain[:_LONGEST]}... {zlib.crc32(plain.encode('utf-8', 'surrogateescape')):08x}"


def _first_program(text: str) -> str:
    for line in text.replace("&&", "\n").replace(";", "\n").splitlines():
        words = line.split()
        while words and ("=" in words[0] or words[0] in {"do", "then", "else", "!", "{"}):
            words = words[1:]
        if words and words[0] not in _SAID_FIRST:
            name = os.path.basename(words[0])
            return command_label(words) if name in _SHELLS or _program(name) in _INTERPRETERS else name
    return ""
