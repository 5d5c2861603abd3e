"""Name of this process for `ps` and `pkill`."""

from __future__ import annotations

from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.light import suppress


def rename_process(name: bytes) -> None:
    """Change the name of this process, and replace its command line by the name, as far as the kernel permits."""
    system_calls.prctl(system_calls.PR_SET_NAME, name)
    with suppress(Exception):
        fields = read_once("/proc/self/stat").rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if end - start > len(name):
            with open("/proc/self/mem", "r+b", buffering=0) as memory:
                memory.seek(start)
                memory.write(name.ljust(end - start, b"\0"))
