"""Snapshots of PyTorch's CUDA allocator, written by the program's own process.

A snapshot is PyTorch's pickle of all segments and blocks, with the stacks of the latest allocations. It is written

* at a new peak of reserved memory that does not rise further: a thread checks four times a second, and once more at the
  end of the program;
* when an allocation fails for lack of memory, before PyTorch raises its error.

Only the standard library, and no other module of this package: this file also runs without an installed package.
The functions of PyTorch used here begin with an underscore; its documentation of memory snapshots names them.

A snapshot takes host memory of the program, in proportion to `ENTRIES`, and holds the interpreter's lock meanwhile.
"""

from __future__ import annotations

import _thread
import atexit
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STEP, LEAST_STEP = 1.1, 64 << 20
"""Growth of reserved memory since the last snapshot that is worth another one: a factor, and bytes."""
SETTLED, LONGEST_RISE = 1.0, 10.0
"""Seconds without a new peak before a snapshot, and the longest wait for them: programs reserve memory in many steps."""
PERIOD = 0.25
SHARE, ADVANCE = 0.01, 2.0
"""Time of writing snapshots: share of the run's time, and seconds that may be used ahead of it."""
OOM_PAUSE = 10.0
"""Seconds between two snapshots of failed allocations: a program may catch the error and try again at once."""
ENTRIES = 20_000
"""Latest allocations and releases in a snapshot: about 20 MiB in PyTorch, and as much again while it is written."""
_PATIENCE = 5.0
"""Longest wait for a snapshot that another thread writes, in seconds."""


def begin(torch: Any, directory: str) -> None:
    """Follow the allocator once the program has initialised CUDA; initialise nothing."""
    later = getattr(getattr(torch, "cuda", None), "_lazy_call", None)
    if later is None:
        return

    def start() -> None:
        try:
            Snapshots(torch, directory).begin()
        except Exception:  # an error here would fail the program's first use of CUDA
            pass

    later(start)


class NoImports:
    """Finder that refuses every import by threads in `threads`, for as long as they are there.

    PyTorch's snapshot looks up `torch._inductor`, and that lookup imports the package. The program may import parts of it
    at the same time. Two threads that import modules which import each other can fail with an `ImportError`.
    """

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Raise `ImportError` in a thread that writes a snapshot; let other finders answer otherwise."""
        if _thread.get_ident() in self.threads:
            raise ModuleNotFoundError(name, name=name)


class Snapshots:
    """Snapshots of this process: the latest at a peak, and the latest at a failed allocation."""

    def __init__(self, torch: Any, directory: str) -> None:
        self._torch, self._directory = torch, directory
        self._pid = os.getpid()
        self._began = time.monotonic()
        self._spent, self._level = 0.0, 0
        self._highest, self._rose, self._waits_since = 0, 0.0, float("inf")
        self._grown = 0
        """Bytes by which the process grew while snapshots were written."""
        self._oom_time = float("-inf")
        self._listed: dict[str, dict[str, Any]] = {}
        self._problem = ""
        self._lock = _thread.allocate_lock()
        self._ended = False
        self._imports = NoImports()

    def begin(self) -> None:
        """Record stacks of allocations, and follow the allocator until the program ends."""
        try:
            self._torch.cuda.memory._record_memory_history(
                enabled="all", context="alloc", stacks="python", max_entries=ENTRIES
            )
        except TypeError:  # PyTorch 2.0 has other parameters; its snapshots then have no stacks
            pass
        sys.meta_path.insert(0, self._imports)
        self._torch._C._cuda_attach_out_of_memory_observer(self.out_of_memory)
        atexit.register(self._end)
        # Not a `Thread`: the program must not find another one in `threading`.
        _thread.start_new_thread(self._follow, ())

    def check(self, *, ends: bool = False) -> None:
        """Write a snapshot if reserved memory has a new peak, has settled there and the budget of time allows."""
        level, now = self._reserved(), time.monotonic()
        if level > self._highest:
            self._highest, self._rose = level, now
        if level < max(self._level * STEP, self._level + LEAST_STEP):
            return
        self._waits_since = min(self._waits_since, now)
        settled = ends or now - self._rose >= SETTLED or now - self._waits_since >= LONGEST_RISE
        if settled and ADVANCE + SHARE * (now - self._began) - self._spent > 0:
            self._level, self._waits_since = level, float("inf")
            self._write("peak", {"reserved": level})

    def out_of_memory(self, device: int, requested: int, *_sizes: int) -> None:
        """Write a snapshot of an allocation that fails. PyTorch calls this before it raises its error."""
        now = time.monotonic()
        if os.getpid() == self._pid and now >= self._oom_time + OOM_PAUSE:
            self._oom_time = now
            try:
                self._write("oom", {"reserved": self._reserved(), "device": device, "requested": requested})
            except Exception:  # the program must get PyTorch's error, not ours
                pass

    def _reserved(self) -> int:
        """Return the peak of bytes reserved from all devices that this process uses."""
        cuda = self._torch.cuda
        in_use = getattr(self._torch._C, "_cuda_hasPrimaryContext", None)
        total = 0
        for index in range(cuda.device_count()):
            if in_use is None or in_use(index):
                held = cuda.memory_stats_as_nested_dict(index).get("reserved_bytes", {}).get("all", {})
                total += max(held.get("current", 0), held.get("peak", 0))
        return total

    def _follow(self) -> None:
        while not self._ended:
            time.sleep(PERIOD)
            try:
                self.check()
            except Exception:
                return

    def _end(self) -> None:
        try:
            if os.getpid() == self._pid:
                self.check(ends=True)
        except Exception:
            pass
        self._ended = True

    def _write(self, kind: str, more: dict[str, Any]) -> None:
        if not self._lock.acquire(timeout=_PATIENCE):
            return
        thread = _thread.get_ident()
        self._imports.threads.add(thread)
        try:
            began, before = time.monotonic(), _resident()
            name = f"torch-{kind}-{self._pid}.pickle"
            temporary = os.path.join(self._directory, f".{name}")
            try:
                # PyTorch opens the file by its name: create it first, readable by its owner only.
                os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
                self._torch.cuda.memory._dump_snapshot(temporary)
                os.replace(temporary, os.path.join(self._directory, name))
                self._listed[kind] = {"kind": kind, "file": name, "time": round(began, 4), **more}
            except Exception as error:  # a full disk, or another error of PyTorch
                self._problem = f"{kind}: {getattr(error, 'strerror', None) or type(error).__name__}"
                if os.path.exists(temporary):
                    os.unlink(temporary)
            self._spent += time.monotonic() - began
            self._grown += max(0, _resident() - before)
            self._list()
        finally:
            self._imports.threads.discard(thread)
            self._lock.release()

    def _list(self) -> None:
        """Write the list of this process's snapshots."""
        listed = {
            "schema": 1,
            "pid": self._pid,
            "rank": _rank(self._torch),
            "snapshots": list(self._listed.values()),
            "grown": self._grown,
            "problem": self._problem,
        }
        name = f"torch-{self._pid}.json"
        temporary = os.path.join(self._directory, f".{name}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(listed, file)
            os.replace(temporary, os.path.join(self._directory, name))
        except OSError:
            if os.path.exists(temporary):
                os.unlink(temporary)


def _resident() -> int:
    """Return the resident size of this process in bytes; 0: unknown."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(200).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _rank(torch: Any) -> int | None:
    """Return the rank of this process in its job; `None` without one."""
    try:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    except Exception:
        pass
    given = os.environ.get("RANK", "")
    return int(given) if given.isdigit() else None
