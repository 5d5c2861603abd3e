"""Files that a user names: input with a size limit, output with a time limit.

The path may be a pipe or a device. open() of a pipe waits until another process opens the other end, write() waits for
the reader, and some devices never end. The functions raise `OSError` with a phrase in `strerror` for the caller's
message: "FILE cannot be read: it is a device".
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import time

MIB = 1 << 20

LARGEST = 64 * MIB
"""Bytes of the largest input, unless the caller sets another limit."""

WRITER_START, SILENCE = 5.0, 60.0
"""Seconds to wait for a process that writes into an input pipe, and for more data from it."""

READER_START, STALL = 1.0, 5.0
"""Seconds to wait for a process that reads an output pipe, and for room in the pipe."""

_BLOCK = MIB
_STEP = 0.05


def read_file(path: str | os.PathLike[str], largest: int = LARGEST, *, pipe: bool = False) -> bytes:
    """Return the content of a regular file, or, with `pipe`, of a pipe such as a shell's `<(command)`.

    Raises `OSError` for a directory, a device, a file of more than `largest` bytes and a pipe without a writer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        is_pipe = stat.S_ISFIFO(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(status.st_mode) and not (pipe and is_pipe):
            kind = "a pipe" if is_pipe else "a device"
            raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))
        too_large = OSError(errno.EFBIG, f"it is larger than {largest // MIB} MiB", os.fspath(path))
        if status.st_size > largest:
            raise too_large
        data = bytearray()
        while block := _block_of_pipe(descriptor, bool(data)) if is_pipe else os.read(descriptor, _BLOCK):
            data += block
            if len(data) > largest:
                raise too_large
        return bytes(data)
    finally:
        os.close(descriptor)


def _block_of_pipe(descriptor: int, begun: bool) -> bytes:
    """Return the next bytes of a non-blocking pipe; none at its end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        try:
            # Until the first writer opens a pipe, read() reports its end.
            block = os.read(descriptor, _BLOCK)
        except BlockingIOError:
            if waited > SILENCE:
                raise OSError(errno.ETIMEDOUT, f"no data in the pipe for {SILENCE:.0f} s") from None
            poll.poll(1000)
            continue
        if block or begun:
            return block
        events = dict(poll.poll(0)).get(descriptor, 0)
        if events & select.POLLIN:
            continue
        if events:
            return b""  # a writer has come and gone
        if waited > WRITER_START:
            raise OSError(errno.ETIMEDOUT, "no process writes into the pipe")
        time.sleep(_STEP)


def write_file(path: str | os.PathLike[str], data: bytes, *, append: bool = False, mode: int = 0o666) -> None:
    """Write `data` into a file in place, or into a pipe or a device as far as another process reads it.

    Raises `OSError` for a pipe that no process opens for reading within a second, or from which the reader takes nothing
    for five.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = _open_output(path, flags | (os.O_APPEND if append else os.O_TRUNC), mode)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:
                if not poll.poll(STALL * 1000):
                    raise OSError(
                        errno.ETIMEDOUT, f"its reader has taken nothing for {STALL:.0f} s"
                    ) from None
    finally:
        os.close(descriptor)


def _open_output(path: str | os.PathLike[str], flags: int, mode: int) -> int:
    began = time.monotonic()
    while True:
        try:
            return os.open(path, flags, mode)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
                raise
            if time.monotonic() - began > READER_START:
                raise OSError(errno.ENXIO, "it is a pipe that no process reads", os.fspath(path)) from None
            time.sleep(_STEP)


def replace_file(path: str | os.PathLike[str], data: bytes, *, mode: int | None = None) -> None:
    """Replace a file atomically, or create it. Raises `OSError`; the file is then unchanged.

    A link is replaced, not followed. Without `mode`, an existing file keeps its mode.
    """
    if mode is None and os.path.isfile(path):
        mode = stat.S_IMODE(os.stat(path).st_mode)
    directory, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(directory, f".{name[:200]}.{os.getpid()}")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def need_regular(path: str | os.PathLike[str]) -> None:
    """Raise `OSError` unless `path` is a regular file: for libraries that open a file themselves and would wait."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
