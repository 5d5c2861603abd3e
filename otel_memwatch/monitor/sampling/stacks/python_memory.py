"""Stacks of Python 3.11 to 3.15, read from the memory of the process.

No tool is started for this: on a busy machine a program may stop growing before a new process gets its first share of a
processor. The program is not stopped, so its stack may change during a reading. A pointer that does not lead to a code object
shows this, and the reading is repeated.

Offsets are those of the interpreter's headers for 64-bit machines. They are the same in all releases of a minor version.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from otel_memwatch.monitor.sampling.stacks.tools import NoStackError, NotPermittedError, is_running
from otel_memwatch.record.jsonl import open_regular
from otel_memwatch.record.stacks import MOST_THREADS, CapturedThread, StackFrame, bounded
from otel_memwatch.runtime.typed import NamedTuple

NAME = "otel-memwatch"
_MODULE = re.compile(
    rb"^([0-9a-f]+)-\S+ \S+ 0+ \S+ [1-9]\d* +(/.*/(?:lib)?python(3\.\d+)(?:\.so[.\d]*)?)$", re.MULTILINE
)
_MOST_MAPS, _MOST_BYTES = 4 << 20, 16 << 20
_MOST_CALLS, _MOST_CHARACTERS = 10_000, 4096
_MOST_WORK, _WORK_OF_READING = 8 << 20, 512
"""Limit of one reading of a process: bytes read and bytes of tables searched, and how many bytes a system call counts at least."""
_ATTEMPTS = 3
_CHANGED = (OSError, struct.error, ValueError, OverflowError, IndexError)
"""Errors of a reading that follows a pointer which is no longer valid."""
_OF_INTERPRETER = 3
"""Least owner of frames that stand for calls of the interpreter by C code, not for Python functions."""
_TAGS = 7
"""Lowest bits of a pointer to a code object, which Python 3.14 and later use for reference counts."""


class _Layout(NamedTuple):
    """Offsets in bytes."""

    interpreters: int
    """In `_PyRuntime`: the first interpreter."""
    next_interpreter: int
    threads: int
    """In an interpreter: its first thread. The next one is at `_NEXT_THREAD` of a thread."""
    thread_id: int
    frame: tuple[int, ...]
    """Pointers that lead from a thread to its innermost frame."""
    code: int
    previous: int
    owner: int
    first_line: int
    """In a code object, as `instructions`."""
    instructions: int
    text: tuple[int, int]
    """In a string: the characters, if all are ASCII, and else."""


_LAYOUTS = {
    b"3.11": _Layout(40, 0, 16, 160, (56, 8), 32, 48, 69, 72, 184, (48, 72)),
    b"3.12": _Layout(40, 0, 72, 144, (56, 0), 0, 8, 70, 68, 192, (40, 56)),
    b"3.13": _Layout(632, 7264, 7344, 160, (72,), 0, 8, 70, 68, 200, (40, 56)),
    b"3.14": _Layout(808, 7272, 7344, 160, (72,), 0, 8, 74, 68, 208, (40, 56)),
    b"3.15": _Layout(936, 7264, 7336, 184, (72,), 0, 8, 74, 68, 208, (40, 56)),
}
_NEXT_THREAD, _TYPE, _LENGTH, _BYTES, _STATE, _INSTRUCTION, _FRAME_SIZE = 8, 8, 16, 32, 32, 56, 75
_FILE, _QUALIFIED_NAME, _LINES = 112, 128, 136


class RemoteInterpreter(NamedTuple):
    """Interpreter of another process."""

    layout: _Layout
    runtime: int
    """Address of `_PyRuntime`."""
    code_type: int
    """Address of `PyCode_Type`."""


def find(pid: int) -> RemoteInterpreter | None:
    """Return the interpreter that a process runs; `None` if its memory is not understood."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            found = _MODULE.findall(file.read(_MOST_MAPS))
        for start, path, version in reversed(found):  # the shared library, if there is one
            if version in _LAYOUTS:
                base, runtime, code_type = _symbols(Path(f"/proc/{pid}/root{os.fsdecode(path)}"))
                offset = int(start, 16) - base
                return RemoteInterpreter(_LAYOUTS[version], offset + runtime, offset + code_type)
    except _CHANGED:
        pass
    return None


_known: dict[tuple[int, int, int], tuple[int, int, int]] = {}
"""Symbols of a file by its device, number and time of change."""


def _symbols(path: Path) -> tuple[int, int, int]:
    """Return the virtual addresses of a module's start, `_PyRuntime` and `PyCode_Type` in its file. Raises an error of `_CHANGED`."""
    with os.fdopen(open_regular(path), "rb") as file:
        status = os.fstat(file.fileno())
        key = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if key in _known:
            return _known[key]
        header = os.pread(file.fileno(), 64, 0)
        if header[:6] != b"\x7fELF\2\1":
            raise ValueError("not a 64-bit little-endian program")
        program, section = struct.unpack_from("<QQ", header, 32)
        programs, _, sections = struct.unpack_from("<3H", header, 56)

        def part(offset: int, size: int) -> bytes:
            return os.pread(file.fileno(), min(size, _MOST_BYTES), offset)

        loads = [row for row in struct.iter_unpack("<IIQQQQQQ", part(program, programs * 56)) if row[0] == 1]
        headers = list(struct.iter_unpack("<IIQQQQIIQQ", part(section, sections * 64)))
        table = next((row for row in headers if row[1] == 11), None)  # SHT_DYNSYM
        if table is None or not loads:
            raise ValueError("no dynamic symbols")
        names = part(*headers[table[6]][4:6])
        places = {names.index(b"\0%b\0" % name) + 1: name for name in (b"_PyRuntime", b"PyCode_Type")}
        symbols = part(*table[4:6])
        values = {
            places[row[0]]: row[4] for row in struct.iter_unpack("<IBBHQQ", symbols) if row[0] in places
        }
        if len(values) < 2:
            raise ValueError("a symbol is missing")
        _known[key] = loads[0][3] - loads[0][2], values[b"_PyRuntime"], values[b"PyCode_Type"]
        return _known[key]


def read(interpreter: RemoteInterpreter, pid: int) -> list[CapturedThread]:
    """Read the threads of a process. Raises `NoStackError`."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError as error:
        raise NotPermittedError(str(error)) from None
    except OSError as error:
        raise NoStackError(str(error)) from None
    try:
        for _ in range(_ATTEMPTS):
            try:
                if threads := list(_StackReading(memory, interpreter).threads()):
                    return [one._replace(active=is_running(pid, one.id)) for one in threads]
            except _CHANGED as error:
                reason = str(error)
            else:
                reason = "no thread runs Python"
    finally:
        os.close(memory)
    raise NoStackError(f"{NAME}: {reason}")


class _StackReading:
    """One reading of a process. All methods raise an error of `_CHANGED`."""

    def __init__(self, memory: int, interpreter: RemoteInterpreter) -> None:
        self._memory, self._interpreter, self._layout = memory, interpreter, interpreter.layout
        self._codes: dict[int, tuple[str, str, int, bytes]] = {}
        """Function, file, first line and table of lines of code objects by their address."""
        self._lines: dict[tuple[int, int], int] = {}
        """Lines by code object and code unit: a recursion repeats them."""
        self._work = 0

    def threads(self) -> list[CapturedThread]:
        """Return all threads that run Python code."""
        found: list[CapturedThread] = []
        interpreter = self._pointer(self._interpreter.runtime + self._layout.interpreters)
        while interpreter and len(found) < MOST_THREADS:
            thread = self._pointer(interpreter + self._layout.threads)
            while thread and len(found) < MOST_THREADS:
                number, frame = self._pointer(thread + self._layout.thread_id), thread
                for offset in self._layout.frame:
                    frame = self._pointer(frame + offset)
                if calls := self._calls(frame):
                    found.append(CapturedThread(number, "", False, None, bounded(calls)))
                thread = self._pointer(thread + _NEXT_THREAD)
            interpreter = self._pointer(interpreter + self._layout.next_interpreter)
        return found

    def _calls(self, frame: int) -> list[StackFrame]:
        calls: list[StackFrame] = []
        while frame:
            if len(calls) >= _MOST_CALLS:
                raise ValueError("the stack has no end")
            data = self._bytes(frame, _FRAME_SIZE)
            code, instruction, frame = (
                struct.unpack_from("<Q", data, offset)[0]
                for offset in (self._layout.code, _INSTRUCTION, self._layout.previous)
            )
            if data[self._layout.owner] >= _OF_INTERPRETER:
                continue
            code &= ~_TAGS
            if code not in self._codes:
                self._codes[code] = self._code(code)
            function, file, first, lines = self._codes[code]
            unit = (instruction - code - self._layout.instructions) // 2
            if (code, unit) not in self._lines:
                self._count(len(lines))
                self._lines[code, unit] = line_at(lines, first, unit)
            calls.append(StackFrame(function, file, self._lines[code, unit]))
        return calls

    def _code(self, address: int) -> tuple[str, str, int, bytes]:
        data = self._bytes(address, _LINES + 8)
        (kind,) = struct.unpack_from("<Q", data, _TYPE)
        if kind != self._interpreter.code_type:
            raise ValueError("not a code object")
        (first,) = struct.unpack_from("<i", data, self._layout.first_line)
        file, name, lines = (
            struct.unpack_from("<Q", data, offset)[0] for offset in (_FILE, _QUALIFIED_NAME, _LINES)
        )
        return self._text(name), self._text(file), first, self._bytes(lines + _BYTES, self._length(lines))

    def _text(self, address: int) -> str:
        length = min(self._length(address), _MOST_CHARACTERS)
        (state,) = struct.unpack("<I", self._bytes(address + _STATE, 4))
        width, compact, ascii_only = state >> 2 & 7, state & 32, state & 64
        encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(width)
        if encoding is None or not compact:
            raise ValueError("not a string")
        start = self._layout.text[0 if ascii_only else 1]
        return self._bytes(address + start, length * width).decode(encoding, "replace")

    def _length(self, address: int) -> int:
        length = self._pointer(address + _LENGTH)
        if length > _MOST_BYTES:
            raise ValueError("a length is out of range")
        return length

    def _pointer(self, address: int) -> int:
        return int.from_bytes(self._bytes(address, 8), "little")

    def _bytes(self, address: int, size: int) -> bytes:
        self._count(max(size, _WORK_OF_READING))
        data = os.pread(self._memory, size, address)
        if len(data) < size:
            raise ValueError("the end of a mapping")
        return data

    def _count(self, work: int) -> None:
        self._work += work
        if self._work > _MOST_WORK:  # lists may lead back to their beginning
            raise ValueError("the stacks are too large")


def line_at(table: bytes, first: int, unit: int) -> int:
    """Return the line of an instruction; 0 for one without a line.

    Args:
        table: `co_linetable` (Objects/locations.md in the sources of CPython).
        first: first line of the function.
        unit: number of the instruction's code unit; negative before the first instruction.
    """
    line, end, index = first, 0, 0
    while index < len(table):
        kind, end = table[index] >> 3 & 15, end + (table[index] & 7) + 1
        if kind in (13, 14):
            line += _signed(table, index + 1)
        elif 10 <= kind <= 12:
            line += kind - 10
        if unit < end:
            return 0 if kind == 15 else max(0, line)
        index += 1
        while index < len(table) and table[index] < 128:
            index += 1
    return 0


def _signed(table: bytes, index: int) -> int:
    """Return the number of variable length at `index`: 6 bits in each byte, the lowest bit is the sign."""
    value = shift = 0
    while shift < 36:
        value |= (table[index] & 63) << shift
        if not table[index] & 64:
            break
        index, shift = index + 1, shift + 6
    return -(value >> 1) if value & 1 else value >> 1
