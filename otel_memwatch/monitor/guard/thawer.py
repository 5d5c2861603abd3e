"""Helper process that lets a frozen run go on if this process is killed meanwhile.

Processes in version 2 of cgroups stay frozen until a program lets them go on. So they are frozen only while this helper lives.
"""

from __future__ import annotations

import contextlib
import os

from otel_memwatch.runtime.rename_process import rename_process
from otel_memwatch.runtime.system_calls import open_files, signal
from otel_memwatch.runtime.typed import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup

_NAME = b"memwatch-thawer"
_NONE = b"-"
"""Order in place of a path: nothing is frozen."""


class Thawer:
    """The helper. Create it in the main thread, before other threads and before a fork bomb uses up processes.

    Attributes:
        pid: of the helper, which ends when we do.

    """

    def __init__(self) -> None:
        """Start the helper. Raises `OSError`."""
        orders, self._orders = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _wait(orders)
        except OSError:
            os.close(self._orders)
            raise
        finally:
            os.close(orders)

    def freeze(self, group: OwnCgroup, *, frozen: bool) -> None:
        """Freeze a cgroup, or let it go on."""
        with contextlib.suppress(OSError):  # another program has killed the helper
            if frozen:
                os.write(self._orders, os.fsencode(group.path) + b"\n")
                group.freeze(frozen=True)
            else:
                group.freeze(frozen=False)
                os.write(self._orders, _NONE + b"\n")

    def end(self) -> None:
        """End the helper, and wait for it."""
        orders, self._orders = self._orders, -1  # an order that comes later must not reach another file
        os.close(orders)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _wait(orders: int) -> NoReturn:
    """Run the helper: when the orders end, let the cgroup of the last one go on."""
    try:
        os.setsid()  # a harness may kill our process group
        for fd in open_files():
            if fd != orders:
                with contextlib.suppress(OSError):
                    os.close(fd)
        rename_process(_NAME)
        given = b""
        while part := os.read(orders, 4096):
            given += part
        path = given.splitlines()[-1]
        if path != _NONE:
            file = os.open(path + b"/cgroup.freeze", os.O_WRONLY)
            os.write(file, b"0")
    finally:
        os._exit(0)
