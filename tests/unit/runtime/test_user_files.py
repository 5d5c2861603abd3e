"""Files that a user names are read and written within limits of size and time, also where they are pipes or devices."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import pytest

from otel_memwatch.runtime import user_files
from otel_memwatch.runtime.user_files import need_regular, read_file, replace_file, write_file


@pytest.fixture
def fifo(tmp_path, monkeypatch):
    for name in ("WRITER_START", "READER_START", "STALL"):
        monkeypatch.setattr(user_files, name, 0.2)
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def in_background(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_pipe_that_no_process_writes_into_is_an_error_soon(fifo):
    with pytest.raises(OSError, match="no process writes into the pipe"):
        read_file(fifo, pipe=True)


def test_a_pipe_is_read_to_its_end(fifo):
    data = os.urandom(300_000)
    writer = in_background(lambda: fifo.write_bytes(data))
    assert read_file(fifo, pipe=True) == data
    writer.join(5)


def test_an_empty_pipe_is_an_empty_file(fifo):
    writer = in_background(lambda: fifo.write_bytes(b""))
    assert read_file(fifo, pipe=True) == b""
    writer.join(5)


def test_a_pipe_is_refused_unless_the_caller_takes_one(fifo):
    with pytest.raises(OSError, match="it is a pipe, not a regular file"):
        read_file(fifo)
    with pytest.raises(OSError, match="not a regular file"):
        need_regular(fifo)


def test_an_endless_device_is_refused():
    with pytest.raises(OSError, match="it is a device, not a regular file"):
        read_file("/dev/zero", pipe=True)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, pipe=True)


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
def test_a_file_is_read_up_to_the_limit(tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(bytes(size))
    if size <= 1 << 20:
        assert read_file(path, 1 << 20) == bytes(size)
        return
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_file(path, 1 << 20)


def test_an_endless_pipe_ends_at_the_limit(fifo):
    def endless():
        with suppress(BrokenPipeError), fifo.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))

    writer = in_background(endless)
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_file(fifo, 1 << 20, pipe=True)
    writer.join(5)
    assert not writer.is_alive()


def test_output_into_a_pipe_without_a_reader_is_an_error_soon(fifo):
    with pytest.raises(OSError, match="it is a pipe that no process reads"):
        write_file(fifo, b"x")


def test_the_reader_of_a_pipe_gets_all_of_the_output(fifo):
    data, read = os.urandom(1_000_000), []
    reader = in_background(lambda: read.append(fifo.read_bytes()))
    write_file(fifo, data)
    reader.join(5)
    assert read == [data]


def test_a_reader_that_stops_reading_is_an_error_soon(fifo):
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="its reader has taken nothing"):
            write_file(fifo, bytes(1_000_000))
    finally:
        os.close(descriptor)


def test_a_file_is_replaced_or_added_to(tmp_path):
    path = tmp_path / "file"
    write_file(path, b"long")
    write_file(path, b"ab")
    write_file(path, b"c", append=True)
    assert path.read_bytes() == b"abc"


def test_a_replaced_file_keeps_its_mode_and_a_link_is_not_followed(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"first")
    file.chmod(0o640)
    link.symlink_to(file)
    replace_file(file, b"second")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"second", 0o640)
    replace_file(link, b"third", mode=0o755)
    assert (file.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"second", b"third", False)
    assert link.stat().st_mode & 0o777 == 0o755


def test_a_file_that_cannot_be_replaced_is_unchanged(tmp_path):
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "directory", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]
