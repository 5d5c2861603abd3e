"""Start of the command: a child, in which Python's changes are undone, and exec; and the reason if exec fails.

The compiled program of `launcher/start.c` makes the child while this process goes on, and then is the witness. A fork copies
the page tables of the interpreter, and then each page that either process changes: 2 ms. It is the plain twin, for
`before_exec`, or if the program is absent or does not work. Its resident memory is the floor of the command's peak in
wait4, 9 MiB instead of 2.
"""

from __future__ import annotations

import errno
import os
import time

from otel_memwatch.errors import CommandNotStarted
from otel_memwatch.monitor.run.supervise import signals, target
from otel_memwatch.monitor.run.supervise.child_report import FLOOR_MARGIN, parsed, read_report
from otel_memwatch.monitor.run.supervise.signals import Witness
from otel_memwatch.monitor.run.supervise.target import Target
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.light import ExitStack, partial, suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


_COMPILED = f"{__file__.rpartition('/run/')[0]}/launcher/recipe"
_NAME = b"command-start"
_DIGITS = 10
"""Bytes of the child's pid in the pipe of the witness."""


def launch(
    argv: Sequence[str | bytes],
    *,
    variables: Mapping[str, str],
    entrance: int | None = None,
    before_exec: Callable[[], int | None] | None = None,
    forked: Callable[[Sequence[int]], None] | None = None,
    meanwhile: Iterable[object] = (),
    death_signal: int = 0,
) -> Target:
    """Start a command as our child, in our process group. Call it once, in the main thread, as the only thread.

    - The command inherits our environment, open files, signal mask, dispositions and timers, unchanged since our start.
      We do not read stdin.
    - From now on we hold none of its files except stderr: a pipe or lock that the command closes is closed.
    - Signals are blocked in the calling thread and in all threads that it starts later. `Target.wait` takes them.
    - On Linux this process becomes the subreaper of its descendants.

    Args:
        argv: program and arguments, verbatim. The program is searched in PATH, like execvp(3).
        variables: environment variables to add for the command.
        entrance: descriptor of a file; the child enters a cgroup by writing "0" into it. If that fails, the command starts
            all the same, and `Target.misplaced` has the reason.
        before_exec: called in the child before exec instead, if entering takes more than that. It returns the child's page
            faults before it entered, if known (`Target.faults_before`).
        forked: called in this process with the pids of the child and the witness, while the child is in `before_exec`.
            Its exceptions are ignored: `before_exec` has to notice the failure.
        meanwhile: iterated in this process, step by step, until the child is ready. The kernel may take some ms to
            move the child. The steps must have no effect if the command turns out not to exist.
        death_signal: signal that the command gets if this process dies, unless we get one ourselves; 0: none.

    Raises:
        CommandNotStarted: with exit code 127 (not found) or 126 (not executable). Signals are then as before;
            stdin and stdout are not.
    """
    command = Command(argv, variables)
    strangers = frozenset(_children())
    system_calls.prctl(system_calls.PR_SET_CHILD_SUBREAPER, 1)
    inherited = signals.hold()
    try:
        steps = iter(meanwhile)
        death_signal = system_calls.parent_death_signal() or death_signal
        child = None if before_exec else _spawn(command, inherited, entrance, death_signal, steps)
        if child is None:
            child = _fork(command, inherited, before_exec or _entering(entrance), death_signal)
        # Both before the command runs: it may release a lock, close a pipe, or signal its group at once.
        _close_files_of_target()
        pid, witness = child.pid, child.witness or Witness()
        if forked is not None:
            with suppress(Exception):
                forked([pid] if witness.pid is None else [pid, witness.pid])
        with suppress(BrokenPipeError):  # another program has killed the child already
            os.write(child.go, b".")
        os.close(child.go)
        start = parsed(read_report(child.report, steps, pid))
        if start.failure is not None:
            os.waitpid(pid, 0)
            witness.end()
            error = command.failure(*start.failure)
            error.errno = start.failure[0]
            raise error
    except CommandNotStarted:
        signals.let_go(inherited)
        raise
    floor, faults = start.floor + FLOOR_MARGIN, start.faults_before
    return Target(
        pid, start.moment, floor, start.misplaced, faults_before=faults, witness=witness, strangers=strangers
    )


class _Child(NamedTuple):
    """Child that becomes the command."""

    pid: int
    report: int
    """Pipe that reports its start."""
    go: int
    """Pipe in which a byte starts the command."""
    witness: Witness | None = None
    """Process that was started with it; `None`: not yet."""


def _spawn(
    command: Command,
    inherited: signals.InheritedState,
    entrance: int | None,
    death_signal: int,
    meanwhile: Iterator[object],
) -> _Child | None:
    """Start the compiled child and the witness, and take one step of `meanwhile` until both are ready.

    `None`: the program is absent or does not work. Then no process is left.
    """
    with ExitStack() as theirs, ExitStack() as ours, suppress(OSError, ValueError):
        report, writer = _pipe(ours, theirs)
        ready, go = _pipe(theirs, ours)
        questions, ask = _pipe(theirs, ours)
        answers, replies = _pipe(ours, theirs)
        files = [writer, ready, -1 if entrance is None else entrance, questions, replies]
        kept = [(os.POSIX_SPAWN_DUP2, file, file) for file in files if file >= 0]  # exec does not close these
        words = [_NAME, *(b"%d" % file for file in files)]
        first = os.posix_spawn(_COMPILED, words, {}, file_actions=kept)
        theirs.close()
        pid = b""
        try:
            orders = _orders(command, inherited, death_signal)
            with suppress(BrokenPipeError):
                while orders:
                    orders = orders[os.write(go, orders) :]
            next(meanwhile, None)
            pid = os.read(answers, _DIGITS)
        finally:
            if not pid:
                ours.close()
                os.waitpid(first, 0)
        if pid:
            ours.pop_all()
            return _Child(int(pid), report, go, Witness.adopt(first, ask, answers))
    return None


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Return a pipe. Each stack closes one end."""
    ends = os.pipe()
    for stack, end in zip((reader, writer), ends, strict=True):
        stack.callback(os.close, end)
    return ends


def _orders(command: Command, inherited: signals.InheritedState, death_signal: int) -> bytes:
    """Return the orders for `start.c`."""
    timers = {which: (seconds, interval) for which, seconds, interval in inherited.timers}
    lists = command.candidates, command.argv, [b"%b=%b" % pair for pair in command.environment.items()]
    words = [
        *(b"%d" % number for number in (death_signal, _bits(inherited.mask), _bits(inherited.ignored))),
        *(b"%.6f" % figure for which in sorted(timers) for figure in timers[which]),
        *(b"%d" % len(one) for one in lists),
        *(word for one in lists for word in one),
    ]
    text = b"".join(b"%b\0" % word for word in words)
    return b"%020d" % len(text) + text


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << (number - 1) for number in numbers)


def _entering(entrance: int | None) -> Callable[[], int] | None:
    """Return a function that enters a cgroup."""
    if entrance is None:
        return None
    from otel_memwatch.monitor.run_cgroup.own_cgroup import enter

    return partial(enter, entrance)


def _fork(
    command: Command,
    inherited: signals.InheritedState,
    before_exec: Callable[[], int | None] | None,
    death_signal: int,
) -> _Child:
    """Fork the child."""
    try:
        report, writer = os.pipe()
        ready, go = os.pipe()
        pid = os.fork()
    except OSError as error:
        raise CommandNotStarted(f"Cannot start a process for the command: {error.strerror}", 126) from error
    if pid == 0:
        os.close(go)
        if death_signal:  # set for the command; a fork clears it
            system_calls.prctl(system_calls.PR_SET_PDEATHSIG, death_signal)
        _become(command, inherited, writer, ready, before_exec)
    os.close(writer)
    os.close(ready)
    return _Child(pid, report, go)


def _become(
    command: Command,
    inherited: signals.InheritedState,
    report: int,
    ready: int,
    before_exec: Callable[[], int | None] | None,
) -> NoReturn:
    """Execute the command in the child once a byte arrives in `ready`. `parsed` reads the lines written to `report`."""
    try:
        if before_exec is not None:
            try:
                faults = before_exec()
                if faults is not None:
                    os.write(report, b"entered %d\0" % faults)
            except Exception as error:  # noqa: BLE001 - trouble of the monitor must not stop the command
                os.write(report, b"misplaced %s\0" % os.fsencode(str(error)))
        signals.let_go(inherited)
        os.read(ready, 1)
        for _ in range(2):  # the first round loads the pages that the second one counts
            os.write(report, b"started %r %d\0" % (time.monotonic(), target.own_max_rss()))
        number, path = command.execute()
        os.write(report, b"failed %d %s\0" % (number, path))
    finally:
        os._exit(127)


def _children() -> list[int]:
    """Return children from before our own exec. They belong to other programs and are never part of the tree."""
    try:
        return [int(pid) for pid in read_once(f"/proc/self/task/{os.getpid()}/children").split()]
    except OSError:
        return []


def _close_files_of_target() -> None:
    """Close stdin, stdout and every inherited file except stderr.

    If we kept them open, a pipe would have no end of file and a lock no release until we end. Files that Python opened
    itself are not inheritable.
    """
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            if not _is_ours(fd):
                os.dup2(null, fd)
        if null > 2:
            os.close(null)
    for fd in system_calls.open_files():
        if fd > 2 and not _is_ours(fd):
            with suppress(OSError):
                os.close(fd)


def _is_ours(fd: int) -> bool:
    """Return whether this program opened the file: descriptors 0 to 2 too, if they were closed at our start."""
    try:
        return not os.get_inheritable(fd)
    except OSError:
        return False


_NOT_HERE = frozenset(
    getattr(errno, name)
    for name in ("ENOENT", "ENOTDIR", "ESTALE", "ENODEV", "ETIMEDOUT", "ENAMETOOLONG", "ELOOP")
)
"""Errors after which the search along PATH continues."""
_SHELL = b"/bin/sh"


class Command:
    """Arguments and environment in bytes, and `execute`, which replaces the process like execvp(3).

    Args:
        argv: program and arguments. Text is encoded like file names: surrogates become the bytes that they represent.
        variables: added to the environment of this process; they replace variables of the same name.

    Raises:
        CommandNotStarted: for a command that no system call can express.

    """

    def __init__(self, argv: Sequence[str | bytes], variables: Mapping[str, str]) -> None:
        self.argv = [os.fsencode(argument) for argument in argv]
        if not self.argv:
            raise CommandNotStarted("There is no command to start", 127)
        if any(b"\0" in argument for argument in self.argv):
            raise CommandNotStarted("An argument of the command contains a null byte", 126)
        self.environment = environment()
        self.environment.update((os.fsencode(name), os.fsencode(value)) for name, value in variables.items())
        self.candidates = self._candidates()

    def _candidates(self) -> list[bytes]:
        """Return the paths to try, in order: the name itself if it has a slash, else the name in each directory of PATH."""
        name = self.argv[0]
        if b"/" in name or not name:
            return [name] if name else []
        path = self.environment.get(b"PATH")
        if path is None:
            path = os.fsencode(os.confstr("CS_PATH") or os.defpath)
        return [os.path.join(directory, name) for directory in path.split(b":")]

    def execute(self) -> tuple[int, bytes]:
        """Become the command. Return only if that fails: the errno, and the path that caused it."""
        failure = (errno.ENOENT, self.argv[0])
        for path in self.candidates:
            error = self._become(path, self.argv)
            if error == errno.ENOEXEC and _looks_like_text(path):
                error = self._become(_SHELL, [_SHELL, path, *self.argv[1:]])
            if error not in _NOT_HERE | {errno.EACCES} or b"/" in self.argv[0]:
                return error, path
            if error == errno.EACCES or (failure[0] != errno.EACCES and os.path.lexists(path)):
                failure = (error, path)
        return failure

    def _become(self, path: bytes, argv: list[bytes]) -> int:
        try:
            os.execve(path, argv, self.environment)  # noqa: S606 - verbatim: no shell
        except OSError as error:
            return error.errno or errno.EINVAL

    def failure(self, number: int, path: bytes) -> CommandNotStarted:
        """Return the error of `execute` in words, with a shell's exit code."""
        name, shown_path = _readable(self.argv[0]), _readable(path)
        if number == errno.ENOENT:
            interpreter = _interpreter(path)
            if interpreter:
                hint = "the file has Windows line endings" if interpreter.endswith("\\r") else None
                return CommandNotStarted(
                    f"{shown_path}: its interpreter {interpreter} does not exist", 127, hint
                )
            if b"/" in self.argv[0]:
                return CommandNotStarted(f"{name}: no such file", 127)
            return CommandNotStarted(f"{name}: command not found", 127, _hint(self.argv, name))
        if os.path.isdir(path):
            return CommandNotStarted(f"{shown_path} is a directory", 126)
        if number == errno.EACCES:
            if not os.path.lexists(path):
                return CommandNotStarted(
                    f"{name}: this user may not search {_readable(os.path.dirname(path))}", 126
                )
            hint = None if os.access(path, os.X_OK) else f"chmod +x {shown_path}, or name its interpreter"
            return CommandNotStarted(f"{shown_path}: permission denied", 126, hint)
        if number == errno.ENOEXEC:
            return CommandNotStarted(f"{shown_path} is not a program that this machine can run", 126)
        return CommandNotStarted(f"{shown_path}: {os.strerror(number).lower()}", 126)


_LONGEST_SHOWN = 100
"""Characters of a command line that a hint repeats."""
_BUILT_INS = frozenset(
    (
        b"alias",
        b"cd",
        b"eval",
        b"export",
        b"set",
        b"shift",
        b"source",
        b"trap",
        b"ulimit",
        b"umask",
        b"unset",
        b".",
        b":",
    )
)
"""Shell built-ins, which are not programs."""


def _hint(argv: Sequence[bytes], name: str) -> str | None:
    """Return advice for a command that does not exist; `None`: none."""
    if os.path.isfile(argv[0]):
        return f"to run the file in this directory, write ./{name}"
    if b" " in argv[0].strip():
        import shlex

        line = name if len(name) <= _LONGEST_SHOWN else "..."
        return f"quotes make it one word; for a shell command line: otel-memwatch wrap -- sh -c {shlex.quote(line)}"
    if argv[0] in _BUILT_INS:
        return "it is a shell built-in: otel-memwatch wrap -- sh -c '...'"
    variable, equals, _ = argv[0].partition(b"=")
    if equals and variable.decode("ascii", "replace").isidentifier():
        return f"to set a variable: {_readable(variable)}=... otel-memwatch wrap -- COMMAND"
    return None


def environment() -> dict[bytes, bytes]:
    """Return the environment that this process inherited, byte for byte.

    Python may have added LC_CTYPE to `os.environ` (PEP 538), so the kernel's copy is read. Without /proc use
    `os.environb`. If a variable occurs twice, the first one counts, as in getenv(3).
    """
    try:
        entries = read_once("/proc/self/environ").split(b"\0")
    except OSError:
        return dict(os.environb)
    variables: dict[bytes, bytes] = {}
    for entry in entries:
        end = entry.find(b"=", 1)
        if end > 0:
            variables.setdefault(entry[:end], entry[end + 1 :])
    return variables


def _looks_like_text(path: bytes) -> bool:
    """Return whether a file that the kernel cannot execute may be a shell script: no null byte in its first line."""
    try:
        with open(path, "rb") as file:
            return b"\0" not in file.read(80).split(b"\n")[0]
    except OSError:
        return False


def _interpreter(path: bytes) -> str | None:
    """Return the interpreter in the first line of a script if it does not exist; `None` otherwise.

    Like the kernel, take the carriage return of a Windows line end as part of the name.
    """
    try:
        with open(path, "rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    words = first[2:].rstrip(b"\n").strip(b" \t").replace(b"\t", b" ").split(b" ")
    if first.startswith(b"#!") and words[0] and not os.path.exists(words[0]):
        return _readable(words[0]).replace("\r", "\\r")
    return None


def _readable(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace") or "''"
