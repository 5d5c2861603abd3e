"""`--redact`: secrets are planted in every text of a run, and every byte of every output is searched for them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.record.made_of import MadeOf, MemoryPart, ProcessParts, write_made_of
from otel_memwatch.record.stacks import Capture, CapturedThread, StackFrame, Stacks, write_stacks
from otel_memwatch.reports import REPORTS
from tests.support.programs import need
from tests.support.wrapped import PROGRAM, environment

SECRET = "hunter2"
OPERATION = "Fold"
TARGET = f"""
import subprocess, sys, time
from otel_memwatch import mark, operation
with operation("{OPERATION}", **{{"{SECRET}-patient": "{SECRET}-attribute"}}):
    block = bytearray(50 << 20)
    subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)", "--key={SECRET}-child"])
try:
    with operation("Fails"):
        raise ValueError("{SECRET}-error")
except ValueError:
    pass
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("redact") / f"{SECRET}-folder"
    place.mkdir()
    script = place / f"{SECRET}-script.py"
    script.write_text(TARGET)
    options = [
        "--name",
        f"{SECRET}-name",
        "--tag",
        f"{SECRET}-sample={SECRET}-tag",
        "--budget",
        f"operation:{OPERATION}=1GiB",
        "--out",
        str(place / f"{SECRET}-run"),
    ]
    variables = environment() | {
        "OTEL_RESOURCE_ATTRIBUTES": f"{SECRET}-team={SECRET}-team",
        "OTEL_SERVICE_NAME": f"{SECRET}-service",
        "SLURM_JOB_NAME": f"{SECRET}-job",
        "MALLOC_CONF": f"prof_prefix:{SECRET}-allocator",
    }
    command = [*PROGRAM, "wrap", *options, "--", sys.executable, str(script), f"--password={SECRET}-argument"]
    subprocess.run(command, check=True, capture_output=True, env=variables, cwd=place, timeout=60)
    # A host's name cannot be planted from outside.
    path = place / f"{SECRET}-run" / "run.json"
    document = json.loads(path.read_text())
    document["host"]["name"] = f"{SECRET}-host"
    path.write_text(json.dumps(document))
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


def test_no_byte_of_a_report_has_a_secret_and_figures_stay(run: Path, tmp_path: Path) -> None:
    assert SECRET.encode() in told(run, "report", str(run), "--json")
    for form in ("text", "markdown", "json"):
        data = told(run, "report", str(run), "--redact", "--format", form)
        assert SECRET.encode() not in data
        assert OPERATION.encode() in data
        assert b"redacted" in data
    page = tmp_path / "page.html"
    told(run, "report", "--redact", str(run), "--html", str(page))
    assert SECRET not in page.read_text()
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
            assert SECRET.encode() not in (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data), form


@pytest.mark.parametrize("how", ["--redact", "--redact=all"])
def test_no_byte_of_a_page_of_two_runs_has_a_secret(run: Path, tmp_path: Path, how: str) -> None:
    page = tmp_path / "compared.html"
    told(run, "compare", str(run), str(run), how, "--page", str(page))
    assert SECRET not in page.read_text()
    assert (OPERATION in page.read_text()) == (how == "--redact")


def test_no_byte_of_a_bundle_or_a_page_of_runs_has_a_secret(run: Path, tmp_path: Path) -> None:
    bundle, page = tmp_path / "b.tar.gz", tmp_path / "runs.html"
    told(run, "bundle", str(run), "--redact", "-o", str(bundle))
    data = gzip.decompress(bundle.read_bytes())
    assert SECRET.encode() not in data
    assert OPERATION.encode() in data
    told(run, "runs", str(run), "--redact", "--page", str(page))
    assert SECRET not in page.read_text()
    assert "Redacted" in page.read_text()
    told(run, "bundle", str(run), "-o", str(tmp_path / "plain.tar.gz"))
    assert SECRET.encode() in gzip.decompress((tmp_path / "plain.tar.gz").read_bytes())
