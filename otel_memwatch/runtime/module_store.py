"""One file with the bytecode of the modules that a run needs, instead of two files for each module.

It saves opening, reading and closing 150 files, and names that many modules use are decoded once: 2 to 3 ms of each run.
The finder of modules uses it (`module_finder.py`), and a detached process writes it after the prompt.

The file lies in the place of the bytecode of `stored_modules.py`: a user who cannot write bytecode there cannot write it
either. A module counts only if its source has the time and size that it had then, like in a `.pyc` file (PEP 552). The file
holds:

- 4 bytes with the size of the head;
- the head: the `key` of interpreter and folders, an identity, and place and imports of each module;
- segments, which begin with the identity: a tuple of code objects.
"""

from __future__ import annotations

import os
from marshal import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import CodeType
    from typing import Any

_FORMAT = 2
_SEGMENT = 240 << 10
"""Bytes of bytecode in a segment, which is decoded at once. Larger ones decode little faster, and a run may not need all of it."""
_HEAD = 1 << 16
"""Bytes that are read for the head at first."""


class StoredModule:
    """Code of a module, with time and size of its source, and the modules of ours that it imports at once."""

    __slots__ = "code", "imports", "is_package", "name", "size", "source", "time"

    def __init__(
        self, name: str, source: str, *, is_package: bool, time: int, size: int, code: CodeType
    ) -> None:
        self.name, self.source, self.is_package = name, source, is_package
        self.time, self.size, self.code = time, size, code
        self.imports: tuple[str, ...] = ()


class ModuleStore:
    """Reader of the file. Without a readable file for `key` it has no modules."""

    def __init__(self, path: str, key: tuple[object, ...]) -> None:
        self._path = path
        self._codes: dict[str, CodeType] = {}
        """Decoded code that was not asked for yet."""
        self._places: Mapping[str, tuple[int, bool, int, int, tuple[str, ...]]] = {}
        """By module: segment, whether it is a package, time and size of the source, and the modules that it imports at once."""
        self._segments: tuple[tuple[int, int, tuple[str, ...]], ...] = ()
        """Begin, end and modules of each segment."""
        self._identity = b""
        try:
            head = _read(path, 0, _HEAD)
            end = 4 + int.from_bytes(head[:4], "little")
            if end > len(head):
                head += _read(path, len(head), end)
            found: Any = loads(head[4:end])  # noqa: S302 - as Python loads bytecode from this folder
            if found[:2] == (_FORMAT, key):
                _, _, self._identity, self._places, self._segments = found
        except (OSError, ValueError, EOFError, TypeError, IndexError):
            pass

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def place(self, name: str) -> tuple[int, bool, int, int, tuple[str, ...]] | None:
        """Return segment, whether it is a package, time and size of the source, and imports; `None`: it is not stored."""
        return self._places.get(name)

    def code(self, name: str, segment: int) -> CodeType | None:
        """Return the code of a module, once; `None`: the file was replaced."""
        if name not in self._codes:
            self._decode(*self._segments[segment])
        return self._codes.pop(name, None)

    def _decode(self, begin: int, end: int, names: tuple[str, ...]) -> None:
        """Decode a segment. If the file was replaced meanwhile, its identity differs."""
        try:
            data = memoryview(_read(self._path, begin, end))
            if data[: len(self._identity)] == self._identity:
                codes: tuple[CodeType, ...] = loads(data[len(self._identity) :])  # noqa: S302
                self._codes.update(zip(names, codes))  # noqa: B905 - `strict` takes time
        except (OSError, ValueError, EOFError, TypeError):
            pass


def write_store(path: str, key: tuple[object, ...], modules: Iterable[StoredModule]) -> None:
    """Replace the file. Raises `OSError` if the folder is not writable."""
    identity = os.urandom(8)
    places: dict[str, tuple[int, bool, int, int, tuple[str, ...]]] = {}
    segments: list[list[StoredModule]] = [[]]
    size = 0
    for one in modules:
        length = len(dumps(one.code))
        if size + length > _SEGMENT and segments[-1]:
            segments.append([])
            size = 0
        size += length
        places[one.name] = len(segments) - 1, one.is_package, one.time, one.size, one.imports
        segments[-1].append(one)
    texts = [identity + dumps(tuple(one.code for one in part)) for part in segments]
    names = [tuple(one.name for one in part) for part in segments]
    head, begin = b"", 0
    while True:  # the head contains places that depend on its size
        at, found = begin, []
        for text, named in zip(texts, names, strict=True):
            found.append((at, at + len(text), named))
            at += len(text)
        content: Any = _FORMAT, key, identity, places, tuple(found)
        head = dumps(content)
        if begin >= 4 + len(head):
            break
        begin = 4 + len(head) + 64
    head = len(head).to_bytes(4, "little") + head
    _replace(path, head.ljust(begin, b"\0") + b"".join(texts))


def _replace(path: str, data: bytes) -> None:
    """Write a file with the permissions of our source, as Python does for bytecode."""
    made = f"{path}.{os.getpid()}"
    mode = (os.stat(__file__).st_mode | 0o200) & 0o666
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError
        finally:
            os.close(descriptor)
        os.replace(made, path)
    except OSError:
        os.unlink(made)
        raise


def _read(path: str, begin: int, end: int) -> bytes:
    """Return a part of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, end - begin, begin)
    finally:
        os.close(descriptor)
