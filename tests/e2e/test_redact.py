"""`--redact`: secrets are planted in every text of a run, and every byte of every output is searched for them."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from otel_memwatch.cli import COMMANDS, module_of
from otel_memwatch.record.made_of import MadeOf, MemoryPart, ProcessParts, write_made_of
from otel_memwatch.record.stacks import Capture, CapturedThread, StackFrame, Stacks, write_stacks
from otel_memwatch.reports import REPORTS
from tests.support.programs import need
from tests.support.wrapped import PROGRAM, environment

SECRET, COMMIT = "hunter2", "5ec4e7" + 34 * "a"
OPERATION = "Fold"
CHOSEN = ("version", "kind", "status", "unit", "python", "figure", "operation", "function", "trace", "name")
"""Names of tags and attributes that are also names of fields with values of the program's own."""
TARGET = f"""
import subprocess, sys, time
from otel_memwatch import mark, operation
chosen = {{name: "{SECRET}-chosen" for name in {CHOSEN}}}
with operation("{OPERATION}", **chosen, **{{"{SECRET}-patient": "{SECRET}-attribute"}}):
    block = bytearray(50 << 20)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "--key={SECRET}-child"])
    while "{SECRET}-child" not in open("{SECRET}-run/processes.jsonl").read():
        time.sleep(0.05)
    child.kill()
try:
    with operation("Fails"):
        raise ValueError("{SECRET}-error")
except ValueError:
    pass
"""

LARGEST = [{"pid": 7, "command": f"{SECRET}-largest", "bytes": 1 << 20}]
SURROUNDINGS = {
    "own_cgroup": f"/sys/fs/cgroup/{SECRET}-cgroup",
    "ci": {"cicd.pipeline.name": f"{SECRET}-pipeline", "vcs.change.title": f"{SECRET}-title"},
    "gpus": [
        {
            "id": f"{SECRET}-gpu", "name": f"{SECRET}-card", "pci": "0000:01:00.0", "vendor": "nvidia", "driver": "1.0",
            "processes": f"{SECRET}-reason", "held": {f"{SECRET}-7": 1 << 20}, "accounted": {"7": 1 << 20}, "xid": [],
            "unknown": {"memory": {"seconds": 1.0, "error": f"{SECRET}-failure"}}, "trouble": [f"{SECRET}-trouble"],
        }
    ],
    "heaps": [
        {
            "pid": 7, "time": 5001.0, "anonymous": 9 << 20, "private": 9 << 20, "threads": 1,
            "allocators": {
                f"{SECRET}-heap": {"live": 1 << 20, "free": 1 << 20, "scattered": 0},
                "jvm": {"live": 1 << 20, "free": 1 << 20, "scattered": 0, "collector": f"{SECRET}-collector"},
            },
        }
    ],
    "target_group": {"kind": "unit", "name": f"{SECRET}-unit.service", "born": False},
    "findings": [{"kind": "leak", "name": OPERATION, "file": f"{SECRET}-leak.py", "command": f"{SECRET}-leaking", "bytes": 1 << 20}],
    "limit": {"bytes": 1 << 30, "by": "control group", "breached": False, "peak": 1 << 20, "operation": None, "largest": LARGEST},
}  # fmt: skip
"""Fields of a record that a test cannot plant from outside: cgroup, CI, GPUs, heaps, service, findings."""
GUARDED = {
    "verdict": {
        "kind": "stalled",
        "at": 5001.0,
        "exit_code": None,
        "signal": 9,
        "operation": OPERATION,
        "largest": LARGEST,
        "events": f"{SECRET}-events",
        "anything": [f"{SECRET}-cause"],
    },
}
"""A run that the guard ended: `compare` leaves it out."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("redact") / f"{SECRET}-folder"
    place.mkdir()
    (place / ".git" / "refs" / "heads").mkdir(parents=True)
    (place / ".git" / "HEAD").write_text(f"ref: refs/heads/{SECRET}-branch\n")
    (place / ".git" / "refs" / "heads" / f"{SECRET}-branch").write_text(f"{COMMIT}\n")
    (place / ".git" / "COMMIT_EDITMSG").write_text(f"{SECRET}-message\n")
    script = place / f"{SECRET}-script.py"
    script.write_text(TARGET)
    options = [
        "--name",
        f"{SECRET}-name",
        "--tag",
        f"{SECRET}-sample={SECRET}-tag",
        *(word for name in CHOSEN for word in ("--tag", f"{name}={SECRET}-{name}-tag")),
        "--budget",
        f"operation:{OPERATION}=1GiB",
        "--out",
        str(place / f"{SECRET}-run"),
    ]
    variables = environment() | {
        "OTEL_RESOURCE_ATTRIBUTES": ",".join(f"{name}={SECRET}-team" for name in (f"{SECRET}-team", *CHOSEN)),
        "OTEL_SERVICE_NAME": f"{SECRET}-service",
        "SLURM_JOB_NAME": f"{SECRET}-job",
        "USER": f"{SECRET}-user",
        "LOGNAME": f"{SECRET}-user",
        f"{SECRET}_KEY": f"{SECRET}-environment",
        "MALLOC_CONF": f"prof_prefix:{SECRET}-allocator",
    }
    command = [*PROGRAM, "wrap", *options, "--", sys.executable, str(script), f"--password={SECRET}-argument"]
    subprocess.run(command, check=True, capture_output=True, env=variables, cwd=place, timeout=60)
    # A host's name cannot be planted from outside.
    path = place / f"{SECRET}-run" / "run.json"
    document = json.loads(path.read_text())
    document["host"]["name"] = f"{SECRET}-host"
    document |= SURROUNDINGS
    document["resource"] |= {
        name: f"{SECRET}-{name}"
        for name in ("container.id", "k8s.container.name", "k8s.pod.name", "service.name")
    }
    path.write_text(json.dumps(document))
    snapshots = {
        "schema": 1,
        "pid": 7,
        "problem": f"{SECRET}-trouble",
        "snapshots": [{"file": f"{SECRET}.pickle"}],
    }
    (place / f"{SECRET}-run" / "torch-7.json").write_text(json.dumps(snapshots))
    (place / f"{SECRET}-run" / "torch-peak-7.pickle").write_bytes(f"{SECRET}-tensor".encode())
    (place / f"{SECRET}-run" / "metrics.otlp.jsonl").write_text(f'{{"name": "{SECRET}-metric"}}\n')
    part = MemoryPart("file", f"/{SECRET}-model.bin", 5 << 20)
    made_of = MadeOf(5001.0, 5 << 20, (part,), (ProcessParts(7, (part,)),), 0)
    write_made_of(place / f"{SECRET}-run", made_of)
    frame = StackFrame("allocate", f"/{SECRET}-source.py", 3)
    thread = CapturedThread(1, f"{SECRET}-thread", True, None, (frame,))
    start, size = document["started"]["monotonic"], 60 << 20
    pid = document["target"]["pid"]
    capture = Capture(
        start + 0.1, size, pid, f"{SECRET}-program", size, size, size, 0.01, "py-spy", (thread,)
    )
    write_stacks(place / f"{SECRET}-run", Stacks((capture,), size, True, (f"{SECRET}-problem",)))
    return place / f"{SECRET}-run"


def told(run: Path, *words: str) -> bytes:
    done = subprocess.run([*PROGRAM, *words], capture_output=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def peaks(data: bytes) -> object:
    document = json.loads(data)
    return [
        {key: value for key, value in (peak or {}).items() if key != "operation"} if name != "gpu" else peak
        for name, peak in document["peaks"].items()
    ]


@pytest.fixture(scope="module")
def group(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks, each a copy of the run."""
    place = tmp_path_factory.mktemp("group") / f"{SECRET}-job"
    for rank in range(3):
        shutil.copytree(run, place / f"{SECRET}-{rank}")
        path = place / f"{SECRET}-{rank}" / "run.json"
        document = json.loads(path.read_text())
        document["group"] = {"group": f"{SECRET}-group", "launcher": "slurm", "rank": rank, "size": 3}
        document["trace"] = {}
        path.write_text(json.dumps(document))
    return place


def is_safe(data: bytes) -> bool:
    return SECRET.encode() not in data and COMMIT.encode() not in data


def test_secrets_are_planted_in_the_record(run: Path) -> None:
    record = b"".join(one.read_bytes() for one in run.glob("*.json*")).decode()
    names = "folder script name sample tag run patient attribute child team argument branch allocator cgroup pipeline title "
    names += "unit leak leaking collector "
    names += "chosen version-tag gpu card reason failure heap largest container.id k8s.pod.name service.name trouble"
    assert [name for name in names.split() if f"{SECRET}-{name}" not in record] == []
    assert COMMIT in record


def test_no_byte_of_an_output_of_a_group_has_a_secret(group: Path, tmp_path: Path) -> None:
    assert not is_safe(told(group, "report", str(group), "--json"))
    for words in (("report", "--json"), ("report", "--format", "text"), ("export", "--to", "json")):
        data = told(group, words[0], str(group), "--redact", *words[1:])
        assert is_safe(data)
        assert b"redacted" in data
    plain, hidden = (
        json.loads(told(group, "report", str(group), "--json", *more)) for more in ((), ("--redact",))
    )
    assert plain["memory"]["together"] == hidden["memory"]["together"]
    page, compared, bundle = (tmp_path / name for name in ("group.html", "compared.html", "b.tar.gz"))
    told(group, "report", str(group), "--redact", "--html", str(page))
    told(group, "compare", str(group), str(group), "--redact=all", "--page", str(compared))
    told(group, "bundle", str(group), "--redact", "-o", str(bundle))
    data = gzip.decompress(bundle.read_bytes())
    for rank in range(3):
        assert f"rank-{rank}/run.json".encode() in data
    for content in (page.read_bytes(), compared.read_bytes(), data):
        assert is_safe(content)
    assert OPERATION.encode() not in compared.read_bytes()


def test_no_byte_of_a_report_has_a_secret_and_figures_stay(run: Path, tmp_path: Path) -> None:
    assert SECRET.encode() in told(run, "report", str(run), "--json")
    for form in ("text", "markdown", "json"):
        data = told(run, "report", str(run), "--redact", "--format", form)
        assert is_safe(data)
        assert OPERATION.encode() in data
        assert b"redacted" in data
    page = tmp_path / "page.html"
    told(run, "report", "--redact", str(run), "--html", str(page))
    assert is_safe(page.read_bytes())
    plain, hidden = (told(run, "report", str(run), "--json", *more) for more in ((), ("--redact",)))
    assert peaks(plain) == peaks(hidden)


def test_everything_hides_names_of_operations_too(run: Path) -> None:
    data = told(run, "report", str(run), "--redact=all", "--json")
    assert OPERATION.encode() not in data
    assert b"<redacted-name-" in data


def test_no_byte_of_an_export_has_a_secret(run: Path, tmp_path: Path) -> None:
    need("pyarrow")
    forms = [name for name, report in REPORTS.items() if report.exported]
    assert forms
    for form in forms:
        target = tmp_path / form
        told(run, "export", str(run), "--to", form, "--redact", "-o", str(target))
        files = [one for one in target.rglob("*") if one.is_file()] if target.is_dir() else [target]
        assert files, form
        for file in files:
            data = file.read_bytes()
            assert is_safe(data), form
            assert is_safe(plain(data)), form


def plain(data: bytes) -> bytes:
    """Return what a compressed file has."""
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    if data[:4] == b"PAR1":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(io.BytesIO(data))
        return f"{table.to_pylist()} {table.schema}".encode()
    return data


@pytest.mark.parametrize("how", ["--redact", "--redact=all"])
def test_no_byte_of_a_page_of_two_runs_has_a_secret(run: Path, tmp_path: Path, how: str) -> None:
    page = tmp_path / "compared.html"
    told(run, "compare", str(run), str(run), how, "--page", str(page))
    assert is_safe(page.read_bytes())
    assert (OPERATION in page.read_text()) == (how == "--redact")


def test_no_byte_of_a_bundle_has_a_secret(run: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    told(run, "bundle", str(run), "--redact", "-o", str(bundle))
    data = gzip.decompress(bundle.read_bytes())
    assert is_safe(data)
    assert OPERATION.encode() in data
    told(run, "bundle", str(run), "-o", str(tmp_path / "plain.tar.gz"))
    assert SECRET.encode() in gzip.decompress((tmp_path / "plain.tar.gz").read_bytes())


@pytest.fixture(scope="module")
def mixed(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, a damaged one, a measurement of another tool and recipes of make, side by side."""
    place = tmp_path_factory.mktemp("mixed") / f"{SECRET}-runs"
    guarded = shutil.copytree(run, place / f"{SECRET}-run") / "run.json"
    guarded.write_text(json.dumps(json.loads(guarded.read_text()) | GUARDED))
    (place / f"{SECRET}-damaged").mkdir()
    (place / f"{SECRET}-damaged" / "run.json").write_text(f'{{"name": "{SECRET}-damage')
    trace = place.parent / f"{SECRET}-trace.txt"
    names = [
        "task_id",
        "hash",
        "name",
        "tag",
        "container",
        "status",
        "exit",
        "realtime",
        "peak_rss",
        "script",
    ]
    values = (
        f"1 ab/12 {SECRET}-task {SECRET}-label {SECRET}-image COMPLETED 0 1s 100MB {SECRET}-command".split()
    )
    trace.write_text("\t".join(names) + "\n" + "\t".join(values) + "\n")
    told(run, "runs", "import", str(trace), "--into", str(place), "--tag", f"team={SECRET}-imported")
    recipe = {
        "schema": 1, "id": f"20261101T000000Z-{SECRET}-7", "command": ["sh", "-c", f"cc {SECRET}-recipe"], "cwd": f"/{SECRET}-source",
        "host": {"name": f"{SECRET}-builder", "system": "Linux", "release": "6.8", "machine": "x86_64", "cpus": 2},
        "environment": {"SNAKEMAKE_RULE": f"{SECRET}-rule", "GITHUB_REF": f"{SECRET}-ref"},
        "stat": f"101 ({SECRET}) Z 100 99 99 0 -1 0 11000 0 0 0 0 0 0 0 20 0 1 0 10000 0 0\n",
        "target": {"pid": 101, "start": 100.0, "floor": 3 << 20}, "started": {"wall": 1.7e9, "monotonic": 100.0},
        "ended": {"wall": 1.7e9 + 0.5, "monotonic": 100.5}, "exit": {"exit_code": 0, "signal": None},
        "processors": 2, "page_bytes": 4096, "usage": {"max_rss": 40 << 20, "cpu_user": 0.3, "cpu_system": 0.1},
    }  # fmt: skip
    (place / "recipes.jsonl").write_text(json.dumps(recipe, separators=(",", ":")) + "\n")
    return place


GROUPS = ("", "name", "host", "command", "cwd", f"tag.{CHOSEN[0]}", "name,commit")


@pytest.mark.parametrize("by", GROUPS)
def test_no_byte_of_a_page_of_runs_has_a_secret(mixed: Path, tmp_path: Path, by: str) -> None:
    page = tmp_path / "runs.html"
    told(mixed, "runs", str(mixed), *(("--group", by) if by else ()), "--redact", "--page", str(page))
    data = page.read_bytes()
    assert is_safe(data)
    assert b"Redacted" in data


def test_runs_of_every_kind_are_planted_in_the_page(mixed: Path, tmp_path: Path) -> None:
    page = tmp_path / "runs.html"
    told(mixed, "runs", str(mixed), "--page", str(page))
    planted = ("name", "task", "recipe", "damaged")
    assert [name for name in planted if f"{SECRET}-{name}".encode() not in page.read_bytes()] == []


def test_no_byte_of_a_run_that_another_tool_measured_or_the_guard_ended_has_a_secret(
    mixed: Path, tmp_path: Path
) -> None:
    records = {one.parent: one.read_text() for one in mixed.glob("*/run.json")}
    for planted in ("task", "events"):
        (run,) = (one for one, text in records.items() if f"{SECRET}-{planted}" in text)
        bundle = tmp_path / f"{planted}.tar.gz"
        told(mixed, "bundle", str(run), "--redact", "-o", str(bundle))
        assert is_safe(gzip.decompress(bundle.read_bytes()))
        for form in ("json", "markdown"):
            assert is_safe(told(mixed, "report", str(run), "--redact", "--format", form))


def test_no_byte_of_a_comment_has_a_secret_except_the_name_of_the_script(run: Path) -> None:
    """Markdown of a comparison goes to CI servers without `--redact`."""
    data = told(run, "compare", str(run), str(run), "--format", "markdown")
    assert b"base: " in data
    assert SECRET.encode() not in data.replace(f"{SECRET}-script.py".encode(), b"")


def test_every_command_that_redacts_is_searched() -> None:
    redacting = {
        name
        for name in COMMANDS
        for command in [import_module(module_of(name)).command]
        for one in (command, *getattr(command, "commands", {}).values())
        if any(parameter.name == "redact" for parameter in one.params)
    }
    assert redacting == {"report", "export", "bundle", "runs", "compare"}
