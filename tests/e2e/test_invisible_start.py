"""A wrapped command gets and gives exactly what the bare one does: everything but signals and terminals."""

from __future__ import annotations

import ast
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.prefixes import GUARD, SUPERVISED, WRAPPERS, run
from tests.support.wrapped import PROGRAM, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the witnesses are read from /proc")

OURS = ("OTEL_MEMWATCH_", "TRACEPARENT", "TRACESTATE")


@pytest.fixture(params=WRAPPERS)
def prefix(request: pytest.FixtureRequest) -> list[str]:
    return WRAPPERS[request.param]


def same(
    prefix: list[str], argv: list[object], cwd: Path, **how: object
) -> subprocess.CompletedProcess[bytes]:
    """Run it bare and wrapped; both must have written the same on stdout and ended alike. Gives the bare one."""
    bare, wrapped = run(argv, cwd, **how), run([*prefix, *argv], cwd, **how)
    assert (wrapped.stdout, wrapped.returncode) == (bare.stdout, bare.returncode), wrapped.stderr
    return bare


@pytest.mark.parametrize("program", ["/nonexistent", "/bin/true", "/bin/false"])
def test_a_compiled_child_that_does_not_work_is_replaced(program: str, tmp_path: Path) -> None:
    script = (
        "import sys; from otel_memwatch.monitor.run.supervise import end_like, launch, start; "
        "start._COMPILED = sys.argv[1]; "
        "end_like(launch(['sh', '-c', 'cat; exit 6'], variables={}).wait(lambda _: None))"
    )
    done = run([sys.executable, "-c", script, program], tmp_path, input=b"word")
    assert (done.returncode, done.stdout) == (6, b"word"), done.stderr


def test_the_compiled_child_leaves_little_below_which_wait4_says_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run([*SUPERVISED[:2], "--log", log, "true"], tmp_path)
    dead = next(one for one in map(ast.literal_eval, log.read_text().splitlines()) if one["main"])
    assert dead["floor"] < 4 << 20


# -- how it ends


@pytest.mark.parametrize("code", [0, 1, 2, 3, 125, 126, 127, 128, 130, 137, 143, 254, 255])
def test_exit_code(prefix: list[str], code: int, tmp_path: Path) -> None:
    assert same(prefix, ["sh", "-c", f"exit {code}"], tmp_path).returncode == code


@pytest.mark.parametrize(
    "name", ["HUP", "INT", "QUIT", "ABRT", "KILL", "SEGV", "PIPE", "ALRM", "TERM", "USR1", "RTMIN"]
)
def test_death_by_signal(prefix: list[str], name: str, tmp_path: Path) -> None:
    number = getattr(signal, f"SIG{name}")
    done = run([*prefix, "sh", "-c", f"kill -{int(number)} $$"], tmp_path)
    assert done.returncode == -number, done.stderr


def test_no_core_is_written_for_the_wrapper(prefix: list[str], tmp_path: Path) -> None:
    """Where cores are written, a target that writes none leaves none."""
    allow = 'ulimit -c unlimited; "$@"'
    dumping = ["sh", "-c", allow, "sh", "sh", "-c", "kill -SEGV $$"]
    if (
        resource.getrlimit(resource.RLIMIT_CORE)[1] == 0
        or not (run(dumping, tmp_path), list(tmp_path.glob("*core*")))[1]
    ):
        pytest.skip("no cores are written here")
    for core in tmp_path.glob("*core*"):
        core.unlink()
    done = run(["sh", "-c", allow, "sh", *prefix, "sh", "-c", "ulimit -c 0; kill -SEGV $$"], tmp_path)
    assert done.returncode in (-signal.SIGSEGV, 128 + signal.SIGSEGV)
    assert not list(tmp_path.glob("*core*"))


def make_files(place: Path) -> None:
    (place / "plain").write_text("echo never\n")
    (place / "no-interpreter").write_text("#!/nowhere/python\n")
    (place / "binary").write_bytes(b"\x7fELF\0\0\0\0 not really")
    (place / "script-without-first-line").write_text('echo "$0 $1|$2"\nexit 6\n')
    (place / "empty").write_text("")
    (place / "crlf").write_bytes(b"#!/bin/sh\r\nexit 4\r\n")
    for name in ("no-interpreter", "crlf", "binary", "script-without-first-line", "empty"):
        (place / name).chmod(0o755)
    (place / "dangling").symlink_to("nowhere")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("no-such-command-at-all", 127),
        ("./absent", 127),
        ("dangling", 127),
        ("./dangling", 127),
        ("", 127),
        ("plain", 127),
        ("./plain", 126),
        ("./no-interpreter", 127),
        ("./crlf", 127),
        ("./binary", 126),
        ("./empty", 0),
        ("./plain/below", 126),
        (".", 126),
        ("/tmp", 126),
        ("n" * 300, 127),
        ("./" + "n" * 300, 126),
    ],
)
def test_what_cannot_be_executed(prefix: list[str], command: str, code: int, tmp_path: Path) -> None:
    """Exit codes of a shell, one sentence on stderr that names it, nothing on stdout, no run left behind."""
    make_files(tmp_path)
    before = set(tmp_path.iterdir())
    done = run([*prefix, command], tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stdout == b""
    if code:
        assert done.stderr.count(b"\n") == 1, done.stderr
        assert command.encode().removesuffix(b"/below") in done.stderr
        assert b"Traceback" not in done.stderr
        left = {path for path in set(tmp_path.iterdir()) - before if path.name != "memwatch-runs"}
        assert not left
        assert not list(tmp_path.glob("memwatch-runs/*"))


def test_line_ends_of_windows_are_named(tmp_path: Path) -> None:
    make_files(tmp_path)
    done = run([*PROGRAM, "wrap", "--", "./crlf"], tmp_path)
    assert b"its interpreter /bin/sh\\r does not exist" in done.stderr
    assert b"Windows line endings" in done.stderr


def test_a_parent_death_signal_is_the_commands(prefix: list[str], tmp_path: Path) -> None:
    """It is set before the command is executed, and a fork clears it: the one that we make for it."""
    code = "import ctypes; s = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(s)); print(s.value)"
    done = run(["setpriv", "--pdeathsig", "USR1", *prefix, sys.executable, "-c", code], tmp_path)
    assert done.stdout == b"10\n", done.stderr


def test_script_without_interpreter_line(prefix: list[str], tmp_path: Path) -> None:
    make_files(tmp_path)
    done = run([*prefix, "./script-without-first-line", "a b", ""], tmp_path)
    assert (done.stdout, done.returncode) == (b"./script-without-first-line a b|\n", 6)


def test_search_goes_on_after_what_may_not_be_executed(prefix: list[str], tmp_path: Path) -> None:
    """As execvp: a file without permission does not end the search, and is what is reported when nothing is found."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "second/tool").chmod(0o755)
    places = [str(tmp_path / "first"), str(tmp_path / "second")]
    env = environment(PATH=":".join([*places, os.environ["PATH"]]))
    assert run([*prefix, "tool"], tmp_path, env=env).stdout == b"found\n"
    (tmp_path / "second/tool").unlink()
    assert run([*prefix, "tool"], tmp_path, env=env).returncode == 126


@pytest.mark.parametrize("path", [None, "", ":/nowhere"])
def test_search_path_unset_or_with_the_working_directory(
    prefix: list[str], path: str | None, tmp_path: Path
) -> None:
    """An empty place in PATH is the working directory; without PATH the system's default places are searched."""
    (tmp_path / "here").write_text("#!/bin/sh\necho here\n")
    (tmp_path / "here").chmod(0o755)
    env = {name: value for name, value in environment().items() if name != "PATH"}
    if path is None:
        assert run([*prefix, "sh", "-c", "echo found"], tmp_path, env=env).stdout == b"found\n"
    else:
        assert run([*prefix, "here"], tmp_path, env=env | {"PATH": path}).stdout == b"here\n"


# -- what it gets

SHOW = "import sys; sys.stdout.buffer.write(open('/proc/self/cmdline', 'rb').read())"


def test_arguments_are_verbatim(prefix: list[str], tmp_path: Path) -> None:
    strange = [
        b"",
        b"--",
        b"-x",
        b"--quiet",
        b"--out=x",
        b"a b",
        b"*",
        b"$HOME",
        b"'\"",
        b"new\nline",
        b"\xff\xfe\x80",
        "ü€".encode(),
        b"",
    ]
    bare = same(prefix, [sys.executable, "-c", SHOW, *strange], tmp_path)
    assert b"\0\xff\xfe\x80\0" in bare.stdout


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_options_belong_to_the_command(separator: list[str], tmp_path: Path) -> None:
    """With and without --, what follows the command is the command's."""
    argv = [*WRAPPERS["wrap"][:-1], *separator, "printf", "%s|", "--help", "--", "--out", "x"]
    assert run(argv, tmp_path).stdout == b"--help|--|--out|x|"


def read_environment(prefix: list[str], env: dict[str, str] | None, cwd: Path) -> dict[bytes, bytes]:
    done = run([*prefix, "cat", "/proc/self/environ"], cwd, env=env)
    pairs = [entry.partition(b"=") for entry in done.stdout.split(b"\0") if entry]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"LC_ALL": "C", "ODD": "a=b\n", "PATH": os.defpath},
        {"LANG": "C", "PYTHONUTF8": "0", "X": "\udcff"},
    ],
)
def test_environment_is_what_we_were_given(prefix: list[str], env: dict[str, str], tmp_path: Path) -> None:
    """Also an empty one: Python's own locale coercion must not leak."""
    bare, wrapped = read_environment([], env, tmp_path), read_environment(prefix, env, tmp_path)
    added = wrapped.keys() - bare.keys()
    assert {name: wrapped[name] for name in bare if name in wrapped} == bare
    assert all(name.decode().startswith(OURS) for name in added), added
    assert b"OTEL_MEMWATCH_RUN_DIR" in added


def test_environment_through_env_i(prefix: list[str], tmp_path: Path) -> None:
    done = run(["env", "-i", *prefix, "/usr/bin/env"], tmp_path)
    names = [line.partition(b"=")[0].decode() for line in done.stdout.splitlines()]
    assert names
    assert all(name.startswith(OURS) for name in names), names


def test_binary_stdin_and_stdout(prefix: list[str], tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    assert same(prefix, ["cat"], tmp_path, input=data).stdout == data


def test_stdin_is_left_to_the_command(prefix: list[str], tmp_path: Path) -> None:
    """What it does not read stays there for others that share stdin, as in a shell's `while read` loop."""
    script = 'while read -r line; do echo "got $line"; "$@" </dev/stdin >/dev/null; done'
    done = run(["sh", "-c", script, "sh", *prefix, "true"], tmp_path, input=b"1\n2\n3\n")
    assert done.stdout == b"got 1\ngot 2\ngot 3\n"


STATE = (
    "grep -E '^(Sig(Blk|Ign|Cgt)|Umask|Uid|Gid|Groups|CapEff|NoNewPrivs|Seccomp|Cpus_allowed|Mems_allowed):' "
    "/proc/self/status; cat /proc/self/limits /proc/self/oom_score_adj /proc/self/timerslack_ns; pwd; "
    "cut -d' ' -f 18,19,40,41 /proc/self/stat; cat /proc/self/coredump_filter /proc/self/personality"
)


def test_state_of_the_process(prefix: list[str], tmp_path: Path) -> None:
    """Signals, umask, limits, niceness, working directory and the like."""

    def differ() -> None:
        os.umask(0o137)
        os.nice(3)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    bare = same(prefix, ["sh", "-c", STATE], tmp_path, preexec_fn=differ)
    assert b"Umask:\t0137" in bare.stdout
    assert b"SigIgn:\t0000000000000000" in bare.stdout


@pytest.mark.parametrize("ignored", ["INT", "HUP", "TSTP", "PIPE", "TERM QUIT USR1", "WINCH"])
def test_inherited_ignored_signals(prefix: list[str], ignored: str, tmp_path: Path) -> None:
    """Ignored by the shell that starts us: ignored by the command, and nothing else is."""
    script = f"trap '' {ignored}; \"$@\"; exit $?"
    shell, show = ["sh", "-c", script, "sh"], ["grep", "Sig[BI]", "/proc/self/status"]
    bare, wrapped = run([*shell, *show], tmp_path), run([*shell, *prefix, *show], tmp_path)
    assert wrapped.stdout == bare.stdout
    number = getattr(signal, f"SIG{ignored.split(maxsplit=1)[0]}")
    line = next(line for line in bare.stdout.splitlines() if line.startswith(b"SigIgn"))
    assert int(line.split()[1], 16) >> (number - 1) & 1


def test_inherited_ignored_sigchld(prefix: list[str], tmp_path: Path) -> None:
    """Ignored for the command, yet we learn how it ends."""
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)}
    bare = same(prefix, ["grep", "SigIgn", "/proc/self/status"], tmp_path, **ignore)
    assert int(bare.stdout.split()[1], 16) == 1 << signal.SIGCHLD - 1
    assert same(prefix, ["sh", "-c", "exit 7"], tmp_path, **ignore).returncode == 7


def test_inherited_blocked_signals(prefix: list[str], tmp_path: Path) -> None:
    """A mask that we were started with is the command's, and signals that it blocks still reach it."""
    mask = {signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM}
    bare = same(
        prefix,
        ["grep", "SigBlk", "/proc/self/status"],
        tmp_path,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, mask),
    )
    assert int(bare.stdout.split()[1], 16) == sum(1 << (number - 1) for number in mask)


def test_same_group_and_session(prefix: list[str], tmp_path: Path) -> None:
    """As without us, the command is in the group and the session that the shell made for us."""
    argv = [*prefix, "sh", "-c", "cut -d' ' -f 5,6 /proc/$$/stat"]
    with subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, env=environment(), start_new_session=True
    ) as process:
        out = process.communicate(timeout=GUARD)[0]
    assert out.split() == [b"%d" % process.pid] * 2


def test_inherited_timer(prefix: list[str], tmp_path: Path) -> None:
    """`perl -e 'alarm 1; exec @ARGV' command` is a way to limit a command's time."""
    argv = [
        sys.executable,
        "-c",
        "import os, signal, sys; signal.alarm(1); os.execvp(sys.argv[1], sys.argv[1:])",
    ]
    done = run([*argv, *prefix, "sleep", str(GUARD)], tmp_path)
    assert done.returncode == -signal.SIGALRM


# -- files

FILES = """
import os
for name in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        print(name, os.readlink(f"/proc/self/fd/{name}"))
    except FileNotFoundError:
        pass  # the listing's own
print(os.read(9, 100), os.write(8, b"eight"))
"""


def test_inherited_files(prefix: list[str], tmp_path: Path) -> None:
    """Every descriptor is inherited under its number, and none of ours."""
    (tmp_path / "file").write_text("nine")
    shell = ["sh", "-c", 'exec 9<file 8>other; exec "$@" >out', "sh"]
    found = []
    null = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for argv in ([], prefix):
        assert run([*shell, *argv, sys.executable, "-c", FILES], tmp_path, **null).returncode == 0
        found.append((tmp_path / "out").read_text())
        assert (tmp_path / "other").read_text() == "eight"
    assert found[0] == found[1]
    assert "b'nine' 5" in found[0]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files(prefix: list[str], closed: str, tmp_path: Path) -> None:
    """What was closed stays closed in the command, and none of our files takes its place."""
    found = []
    for argv in ([], prefix):
        file = tmp_path / "found"
        numbers = " ".join(map(str, range(40)))
        list_files = (
            f"for n in {numbers}; do [ -h /proc/$$/fd/$n ] && x=$x.$n; done; echo $x > {file}; exit 4"
        )
        script = f'"$@" {closed}; echo $? >> {file}'
        run(["sh", "-c", script, "sh", *argv, "sh", "-c", list_files], tmp_path, stdin=subprocess.DEVNULL)
        found.append(file.read_text())
        file.unlink()
    assert found[0] == found[1]
    assert found[0].endswith("\n4\n")


def test_pipe_that_the_command_closes(prefix: list[str], tmp_path: Path) -> None:
    """The reader of its stdout, and of any other file, sees the end when the command closes it, not when it ends."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = "exec >&- 5>&-; read x < fifo"
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" 5>&1', "sh", *prefix, "sh", "-c", script],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert process.poll() is None
        fifo.write_text("go\n")
        assert process.wait(GUARD) == 0
    finally:
        process.kill()
        process.communicate()


def test_writer_learns_that_no_process_reads(prefix: list[str], tmp_path: Path) -> None:
    """`yes | wrap -- sh -c 'exec <&-; ...'`: the writer must get SIGPIPE although we are still there."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = '(yes; echo done > fifo) | "$@"'
    done = run(
        ["sh", "-c", script, "sh", *prefix, "sh", "-c", "exec <&-; read x < fifo; echo got $x"], tmp_path
    )
    assert done.stdout == b"got done\n"


def test_lock_that_the_command_releases(prefix: list[str], tmp_path: Path) -> None:
    """A lock held through an inherited descriptor is free once the command has closed it."""
    script = 'exec 9>lock; flock 9; "$@" 9>&9 sh -c "exec 9>&-; flock -n lock echo free" & exec 9>&-; wait $!'
    assert run(["sh", "-c", script, "sh", *prefix], tmp_path).stdout == b"free\n"


def test_command_that_closes_all_files(prefix: list[str], tmp_path: Path) -> None:
    script = "import os; os.closerange(0, 256); os._exit(23)"
    assert same(prefix, [sys.executable, "-c", script], tmp_path).returncode == 23


def test_reader_that_leaves(prefix: list[str], tmp_path: Path) -> None:
    """`wrap -- yes | head -1`: the command dies of SIGPIPE, as bare."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    script = '"$@" yes | head -1; echo ${PIPESTATUS[0]}'
    assert run([bash, "-c", script, "bash", *prefix], tmp_path).stdout == b"y\n141\n"
