"""Run directories made to do harm: every reader ends with a result or a sentence, soon and in little memory."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.runtime.masking import MASK
from tests.support import recorded
from tests.support.mutations import LONG
from tests.support.wrapped import PROGRAM, environment

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY = 500
"""MiB of resident memory that a reader may take."""

SECONDS = 60
"""Of processor time, with room for a loaded machine; what never ends takes more."""

LIMITED = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_CPU, (%d, %d))
code = subprocess.run(sys.argv[1:], check=False).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print("MiB", used.ru_maxrss >> 10, file=sys.stderr)
sys.exit(code if code >= 0 else 100 - code)
"""


def call(*words: object, cwd: Path, umask: int = -1) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, *map(str, words)], capture_output=True, cwd=cwd, timeout=120, check=False, env=environment(), umask=umask
    )  # fmt: skip


def limited(*words: object, cwd: Path) -> tuple[int, str, int]:
    """Exit code, stderr, and MiB of the largest process."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED % (SECONDS, SECONDS), *PROGRAM, *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=cwd,
        timeout=300,
        check=False,
        env=environment(),
    )
    told, _, memory = done.stderr.decode().rpartition("MiB ")
    return done.returncode, told, int(memory)


def described(path: Path, **changes: Any) -> Path:
    """Changes fields of the run's description."""
    file = path / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return path


# -- what is no file of ours


def sparse(path: Path, size: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.truncate(descriptor, os.fstat(descriptor).st_size + size)
    return descriptor


def bound(path: Path) -> None:
    """A socket: its path is short, wherever the test's directory lies."""
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "nowhere": lambda path: path.symlink_to("/nonexistent"),
    "circle": lambda path: path.symlink_to("run.json"),
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/full"),
    "huge": lambda path: path.write_bytes(b'{"schema": 1, "id": "' + b"x" * (20 << 20) + b'"}'),
    "sparse": lambda path: os.close(sparse(path, 50 << 30)),
    "nested": lambda path: path.write_bytes(b"[" * 1_000_000),
    "socket": bound,
}


TIMES = {
    "far": "1e300", "past": "-1e18", "nan": "NaN", "text": '"yesterday"', "infinite": "Infinity", "null": "null",
    "list": "[1]", "long": "9" * 5000,
}  # fmt: skip


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of one good run and many that are none."""
    place = tmp_path_factory.mktemp("odd")
    recorded.short(place / "runs/good")
    for name, make in ODD_FILES.items():
        (place / "runs" / name).mkdir()
        make(place / "runs" / name / "run.json")
    for name, text in TIMES.items():
        run = recorded.short(place / "runs" / name)
        content = (run / "run.json").read_text().replace(str(recorded.WALL), text)
        assert text in content
        (run / "run.json").write_text(content)
    (place / "runs/loop").symlink_to("loop")
    return place


def test_runs_lists_all_and_shows_why_some_are_broken(odd: Path) -> None:
    done = call("runs", "runs", cwd=odd)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = {line.split()[0].removeprefix("runs/"): line for line in done.stdout.decode().splitlines()[1:-1]}
    # A link in a circle is a run only where nothing but runs is kept.
    listed_files = [name for name in ODD_FILES if name != "circle"]
    assert set(lines) == {"good", *listed_files, *TIMES}
    assert all(" broken " in lines[name] for name in listed_files)
    assert "broken" not in lines["good"]
    listed = json.loads(call("runs", "--json", "runs", cwd=odd).stdout)
    assert {entry["path"].removeprefix("runs/") for entry in listed} == set(lines)


@pytest.mark.parametrize(
    "words",
    [["runs", "--json"], ["runs", "--json", "--group", "command"], ["runs", "--json", "--columns", "memory"],
     ["advise", "--for", "json"]],
)  # fmt: skip
def test_json_of_a_record_with_infinities_is_json(words: list[str], tmp_path: Path) -> None:
    run = recorded.short(tmp_path / "run")
    content = (run / "run.json").read_text()
    for name in ("at", "bytes", "high"):
        (run / "run.json").write_text(re.sub(rf'"{name}": [\d.]+', rf'"{name}": 1e999', content))
        done = call(*words, "run", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.mark.parametrize("name", ODD_FILES)
def test_a_run_that_is_none_is_one_sentence(name: str, odd: Path) -> None:
    for words in (("report",), ("replay",)):
        done = call(*words, f"runs/{name}", cwd=odd)
        assert (done.returncode, done.stdout) == (1, b""), words
        assert done.stderr.startswith(b"otel-memwatch: ")
        assert done.stderr.count(b"\n") == 1


def test_the_newest_run_is_found_beside_them(odd: Path) -> None:
    (odd / "memwatch-runs").unlink(missing_ok=True)
    (odd / "memwatch-runs").symlink_to("runs")
    done = call("report", cwd=odd)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["samples.jsonl", "processes.jsonl", "operations-5.jsonl"])
@pytest.mark.parametrize("kind", ["fifo", "zero", "directory", "socket"])
def test_other_files_of_a_run(name: str, kind: str, tmp_path: Path) -> None:
    run = described(recorded.short(tmp_path / "run"), state="running", peaks=None)
    (run / name).unlink(missing_ok=True)
    ODD_FILES[kind](run / name)
    for words in (("report",), ("export", "--to", "openmetrics")):
        done = call(*words, "run", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b""), words


# -- what is too much


def _columns(path: Path, ticks: int) -> None:
    columns = [{"metric": "hw.gpu.memory.usage", "attributes": {"hw.id": str(i)}} for i in range(100_000)]
    rows = "".join(f"[{recorded.STARTED + i},1]\n" for i in range(ticks))
    (path / "samples.jsonl").write_text(json.dumps({"schema": 1, "columns": columns}) + "\n" + rows)


def _broken(path: Path, line: str) -> None:
    for name in ("samples.jsonl", "processes.jsonl", "operations-5.jsonl"):
        with (path / name).open("a") as file:
            for _ in range(30):
                file.write(line * 100_000)


def _holes(path: Path) -> None:
    for name in ("samples.jsonl", "processes.jsonl", "operations-5.jsonl"):
        os.close(sparse(path / name, 50 << 30))


def _otlp(path: Path) -> None:
    """Each series has samples at other times: they make no table."""
    (path / "samples.jsonl").unlink()
    points = (
        {"name": f"m{i}", "gauge": {"dataPoints": [{"asInt": "1", "timeUnixNano": str(10**18 + i * 10**6)}]}}
        for i in range(30_000)
    )
    with (path / "metrics.otlp.jsonl").open("w") as file:
        for point in points:
            group = {"resource": {}, "scopeMetrics": [{"metrics": [point]}]}
            file.write(json.dumps({"resourceMetrics": [group]}) + "\n")


TOO_MUCH: dict[str, Callable[[Path], object]] = {
    "columns": lambda path: _columns(path, 1),
    "columns of many ticks": lambda path: _columns(path, 200_000),
    "broken objects": lambda path: _broken(path, "{broken\n"),
    "broken ticks": lambda path: _broken(path, "[5000,\n"),
    "holes": _holes,
    "series": _otlp,
    "arguments": lambda path: described(path, command=["python", *["x"] * 1_000_000]),
    "an argument": lambda path: described(path, command=["python", "a" * 8_000_000]),
    "signs": lambda path: described(path, command=["python", "\x1b\u00e9" * 200_000]),
}

READ_MOST = (("report",), ("report", "--html", "x.html", "--force"))
READ_TOO = (
    ("report", "--json"), ("report", "--format", "qefficient"), ("runs",), ("plot", "-o", "x.png", "--force"),
    ("export", "--to", "csv"), ("export", "--to", "openmetrics"), ("export", "--to", "perfetto"), ("export", "--to", "otlp"),
)  # fmt: skip
"""Each reads all of it with MEMWATCH_LONG=1, and else one kind: they share the reading of the record with the others."""


LARGEST = ("columns", "columns of many ticks", "holes", "series")
"""Of which `test_what_was_not_read_is_reported` and the unit tests of readers have the claim in small."""


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.thorough if what in LARGEST else ()) for what in TOO_MUCH]
)
def test_too_much_is_read_soon_in_little_memory_or_refused(what: str, tmp_path: Path) -> None:
    run = described(recorded.short(tmp_path / "run"), state="running", peaks=None)
    TOO_MUCH[what](run)
    turn = list(TOO_MUCH).index(what) % len(READ_TOO)
    for words in (*READ_MOST, *(READ_TOO if LONG else READ_TOO[turn : turn + 1])):
        code, told, memory = limited(*words, "run", cwd=tmp_path)
        assert code in (0, 1), (words, code, told[-500:])
        assert told.count("\n") <= 1, (words, told[-500:])
        assert "Traceback" not in told
        assert memory < MEMORY, words


@pytest.mark.parametrize("what", ["broken objects", "broken ticks", "holes", "columns of many ticks"])
def test_what_was_not_read_is_reported(what: str, tmp_path: Path) -> None:
    run = described(recorded.short(tmp_path / "run"), state="running", peaks=None)
    TOO_MUCH[what](run)
    assert b"what follows was not read" in b" ".join(call("report", "run", cwd=tmp_path).stdout.split())


def test_a_long_argument_delays_no_reader(tmp_path: Path) -> None:
    secret = "S3CRET" * 20_000
    words = ("--quiet", "--out", "run", "--", "/bin/true", "a" * 120_000, f"--password={secret}")
    assert call("wrap", *words, cwd=tmp_path).returncode == 0
    shown = call("report", "run", cwd=tmp_path).stdout.decode()
    assert MASK in shown
    assert "S3CRET" not in shown


# -- what must not reach a terminal

NAME = "\x1b[31mRED\x1b]0;t\x07\r\n::error::forged \u009b2J\u202e"


def _named(path: Path) -> Path:
    lines = [
        *({"open": 1, "time": 0.1, "name": NAME, "span": "1" * 16}, {"close": 1, "time": 0.4, "peak": 1 << 20, "certainty": "exact"}),
    ]  # fmt: skip
    series = [recorded.TREE, ("hw.gpu.memory.usage", {"hw.id": NAME, "hw.name": NAME})]
    ticks = [(i / 10, 1e6 * i, 5.0) for i in range(10)]
    return recorded.record(
        path, seconds=1.0, series=series, ticks=ticks, operations={100: lines}, command=[NAME]
    )


@pytest.mark.parametrize(
    "words",
    [
        *(("report", "--format", form) for form in ("text", "summary", "markdown", "json", "metrics", "qefficient")),
        *(("export", "--to", form) for form in ("csv", "openmetrics", "perfetto", "otlp", "otlp-traces", "json")),
        ("runs",), ("runs", "--json"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_control_character_of_a_name_is_put_out(words: tuple[str, ...], tmp_path: Path) -> None:
    _named(tmp_path / "run")
    done = call(*words, "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert not {c for c in text if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")}
    assert not [line for line in text.splitlines() if line.startswith("::")]
    assert "RED" in text or words[-1] in {"csv", "openmetrics", "otlp"}


@pytest.mark.parametrize(
    ("style", "suffix", "magic"),
    [
        ("memory", "png", b"\x89PNG"),
        ("phases", "svg", b"<?xml"),
        pytest.param("memory", "pdf", b"%PDF", marks=pytest.mark.thorough),
        pytest.param("phases", "pdf", b"%PDF", marks=pytest.mark.thorough),
    ],
)
def test_pictures_have_the_format_of_their_name(
    style: str, suffix: str, magic: bytes, tmp_path: Path
) -> None:
    _named(tmp_path / "run")
    done = call("plot", "run", "--style", style, "-o", f"x.{suffix}", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, f"x.{suffix}\n".encode())
    assert (tmp_path / f"x.{suffix}").read_bytes().startswith(magic)


def test_a_format_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    _named(tmp_path / "run")
    done = call("plot", "run", "--style", "phases", "-o", "x.jpg", cwd=tmp_path)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"jpg" in done.stderr


def test_the_picture_of_phases_is_no_larger_for_long_names_and_many(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    for i in range(500):
        name = f"{i} \U0001f600 $x^2$ {'W' * 500}"
        lines += [{"open": i, "time": i / 500, "name": name}, {"close": i, "time": (i + 1) / 500}]
    recorded.record(
        tmp_path / "run", seconds=1.0, series=[recorded.TREE], ticks=[(i / 10, 1e6 * i) for i in range(10)],
        operations={100: lines},
    )  # fmt: skip
    done = call("plot", "run", "--style", "phases", "-o", "x.png", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"x.png\n")
    header = (tmp_path / "x.png").read_bytes()[16:24]
    assert int.from_bytes(header[:4], "big") < 12_000
    assert int.from_bytes(header[4:], "big") < 8_000


# -- who may read, and whose pids they are


def test_logs_are_for_their_owner_alone_under_any_umask(tmp_path: Path) -> None:
    done = call(
        "wrap", "--quiet", "--out", "run", "--log-dir", "logs", "--", "sleep", "0.3", cwd=tmp_path, umask=0
    )
    assert done.returncode == 0
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    files = list((tmp_path / "logs").iterdir())
    assert files
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_pid_of_another_namespace_is_not_asked_for_here(tmp_path: Path) -> None:
    run = described(
        recorded.short(tmp_path / "run"),
        state="running",
        host={"name": os.uname().nodename},
        monitor={"pid": 1, "pid_namespace": 1, "mode": "wrap"},
        started={"wall": 4e9, "monotonic": recorded.STARTED},
        ended=None,
    )
    long_ago = 1_700_000_000
    os.utime(run / "samples.jsonl", (long_ago, long_ago))
    assert json.loads(call("report", "--json", "run", cwd=tmp_path).stdout)["run"]["state"] == "incomplete"
    # A record that reports no namespace is taken to be of ours, as ever.
    described(run, monitor={"pid": 1, "mode": "wrap"})
    assert json.loads(call("report", "--json", "run", cwd=tmp_path).stdout)["run"]["state"] == "running"


def test_a_run_shows_its_namespace(tmp_path: Path) -> None:
    assert call("wrap", "--quiet", "--no-plot", "--out", "run", "--", "true", cwd=tmp_path).returncode == 0
    monitor = json.loads((tmp_path / "run/run.json").read_text())["monitor"]
    assert monitor["pid_namespace"] == os.stat("/proc/self/ns/pid").st_ino


def test_an_empty_directory_is_named_in_quotes(tmp_path: Path) -> None:
    assert call("runs", ".", cwd=tmp_path).stderr == b"otel-memwatch: There is no run below '.'.\n"
