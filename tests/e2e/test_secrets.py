"""What a command was given in confidence stays on the machine: secrets are planted, every output is searched."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from pathlib import Path

import pytest

from otel_memwatch import reports
from otel_memwatch.run import load
from tests.support.otlp_sink import OtlpSink
from tests.support.torture import Trial, trial, wait_for
from tests.support.wrapped import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
ARGUMENT = "hunter2-of-the-arguments"
VARIABLE = "hunter2-of-the-environment"
HEADER = "hunter2-of-the-headers"
CHILD = "hunter2-of-a-child"
ENDPOINT = "hunter2-of-the-endpoint"
MADE = "made.o"
"""What the command says it makes: a build action, shown by the report of outputs."""

TARGET = f"""
    import os, subprocess, sys, time
    sys.path.insert(0, {str(ROOT)!r})
    from otel_memwatch import mark, operation
    with operation("Load"):
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.3)", "--password={CHILD}"])
        time.sleep(0.4)
    mark("Last")
    while not os.path.exists(os.environ["SCRAPED"]):
        time.sleep(0.05)
    try:
        with operation("Fails"):
            raise ValueError("password=" + os.environ["API_KEY"])
    except ValueError:
        pass
"""
NAMED = "hunter2-of-an-option"
SECRETS = (ARGUMENT, VARIABLE, HEADER, CHILD, ENDPOINT, NAMED)
MEASURED = b"process_memory_usage_bytes"
OF_STACKS = ("folded", "speedscope", "pprof", "gperftools", "otlp-profiles")
"""Formats of captured stacks, which this run lacks; `tests/unit/reports/test_profiles.py` covers them."""
LOCAL = ("text", "html", "summary", "json", "plot", "phases", "qefficient", "monitor-log")
"""Reports for people on the machine: the command line with its arguments may stand there."""


def found(data: bytes | str) -> set[str]:
    """The secrets that the data holds, plainly or compressed, or in any encoding of a URL or of base 64."""
    import base64

    plain = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    views = [plain]
    for unpack in (gzip.decompress, zlib.decompress):
        try:
            views.append(unpack(plain))
        except (OSError, EOFError, zlib.error):
            continue
    return {
        secret
        for secret in SECRETS
        for form in (
            secret.encode(),
            urllib.parse.quote(secret).encode(),
            base64.b64encode(secret.encode())[4:-4],
        )
        if any(form in view for view in views)
    }


def test_the_search_finds_what_exists() -> None:
    for secret in SECRETS:
        assert found(f"x={secret};") == {secret}
        assert found(gzip.compress(secret.encode())) == {secret}


class Recorded:
    """A run with secrets in it, and everything that left the process while it ran."""

    def __init__(self, run: Trial, sink: OtlpSink) -> None:
        self.directory = run.out
        self.sent = [(path, headers, message) for path, headers, message in _sent(sink)]
        self.scraped: list[bytes] = []
        self.textfile = b""
        self.said = ""
        self.step_summary = self.termination = b""


def _sent(sink: OtlpSink) -> list[tuple[str, dict[str, str], bytes]]:
    return [(path, headers, message.SerializeToString()) for path, headers, message in sink.requests]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    place = tmp_path_factory.mktemp("secrets")
    sink = OtlpSink()
    try:
        with trial(place) as run:
            textfile = place / "metrics.prom"
            enough = place / "scraped"
            variables = run.variables(
                API_KEY=VARIABLE,
                SCRAPED=str(enough),
                AWS_SECRET_ACCESS_KEY=VARIABLE,
                GITHUB_TOKEN=VARIABLE,
                GITHUB_ACTIONS="true",
                GIT_URL=f"https://me:{VARIABLE}@example.org/x.git",
                KUBERNETES_SERVICE_HOST="10.0.0.1",
                OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{HEADER}",
                OTEL_EXPORTER_OTLP_ENDPOINT=sink.url,
                OTEL_TRACES_EXPORTER="otlp",
                GITHUB_STEP_SUMMARY=str(place / "step.md"),
            )
            command = run.command(
                [sys.executable, "-c", textwrap.dedent(TARGET), ARGUMENT, "--hf-token", NAMED, "-o", MADE],
                *("--prometheus", "0", "--textfile", str(textfile), "--metric-interval", "0.3"),
                *("--termination-log", str(place / "termination")),
                plot=True,
            )
            wrapped = run.start(command, env=variables)
            scraped = []
            said = place / "stderr-0"
            wait_for(lambda: "http://127.0.0.1" in (place / "stderr-0").read_text())
            url = next(word for word in said.read_text().split() if word.startswith("http://127.0.0.1"))
            while wrapped.poll() is None:
                try:
                    with urllib.request.urlopen(url, timeout=5) as answer:
                        scraped.append(answer.read())
                except (OSError, urllib.error.URLError):
                    break
                if sum(MEASURED in text for text in scraped) >= 2:
                    enough.touch()
                time.sleep(0.2)
            outcome = run.wait(wrapped)
            assert outcome.code == 0, outcome.err
            result = Recorded(run, sink)
            result.scraped, result.textfile, result.said = scraped, textfile.read_bytes(), outcome.err
            result.step_summary = (place / "step.md").read_bytes()
            result.termination = (place / "termination").read_bytes()
            return result
    finally:
        sink.close()


def test_what_is_pushed(recorded: Recorded) -> None:
    """Metrics, spans and events; the headers of a request are the endpoint's own."""
    assert {path for path, _, _ in recorded.sent} == {"/v1/metrics", "/v1/traces", "/v1/logs"}
    for _, headers, body in recorded.sent:
        assert b"Load" in body or b"memwatch" in body or b"process" in body
        assert found(body) == set()
        assert (
            found(str({name: value for name, value in headers.items() if name != "authorization"})) == set()
        )
    assert all(HEADER in headers["authorization"] for _, headers, _ in recorded.sent), (
        "the header was to be used"
    )


def test_what_is_scraped(recorded: Recorded) -> None:
    assert sum(MEASURED in text for text in recorded.scraped) >= 2
    for text in (*recorded.scraped, recorded.textfile):
        assert found(text) == set()


@pytest.mark.parametrize("name", [name for name in reports.REPORTS if name not in LOCAL + OF_STACKS])
def test_what_is_exported(recorded: Recorded, name: str, tmp_path: Path) -> None:
    """Formats for other programs."""
    written = reports.write(name, load(recorded.directory), tmp_path / f"x{reports.REPORTS[name].suffix}")
    assert written.stat().st_size > 100
    assert name != "outputs" or MADE.encode() in written.read_bytes(), "it has something to tell"
    assert found(written.read_bytes()) == set()


def test_what_is_replayed(recorded: Recorded) -> None:
    sink = OtlpSink()
    try:
        command = [*PROGRAM, "replay", str(recorded.directory), "--otlp", sink.url]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        assert sink.requests
        for _, _, body in _sent(sink):
            assert found(body) == set()
    finally:
        sink.close()


def test_what_is_recorded(recorded: Recorded) -> None:
    """The arguments, verbatim, in two files and the reports of them; nothing of the environment anywhere."""
    arguments = {
        path.name
        for path in recorded.directory.iterdir()
        if found(path.read_bytes()) & {ARGUMENT, CHILD, NAMED}
    }
    assert arguments <= {"run.json", "processes.jsonl", "report.txt", "report.html"}
    assert "run.json" in arguments
    for path in recorded.directory.iterdir():
        verbatim = {NAMED, CHILD} if path.suffix not in (".txt", ".html") else set()
        assert found(path.read_bytes()) <= {ARGUMENT} | verbatim, path
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert recorded.directory.stat().st_mode & 0o777 == 0o700


def test_what_is_said(recorded: Recorded) -> None:
    """On the terminal, which may be a CI log: nothing of the environment, nothing that is named as a secret."""
    assert found(recorded.said) <= {ARGUMENT}


def test_what_is_shown_by_ci_and_kubernetes(recorded: Recorded) -> None:
    """The page of a CI job and the termination message of a container are read by others: no arguments at all."""
    assert recorded.step_summary
    assert recorded.termination
    assert found(recorded.step_summary) == found(recorded.termination) == set()


@pytest.mark.parametrize("name", LOCAL)
def test_what_is_reported(recorded: Recorded, name: str, tmp_path: Path) -> None:
    run = load(recorded.directory)
    if reports.REPORTS[name].directory:
        written = list(reports.write_files(name, run, tmp_path / "logs").iterdir())
    else:
        written = [reports.write(name, run, tmp_path / f"x{reports.REPORTS[name].suffix}")]
    assert written
    for path in written:
        # Only the contract's JSON has the arguments verbatim; what is shown to people masks what is likely a secret.
        assert found(path.read_bytes()) <= ({ARGUMENT, NAMED, CHILD} if name == "json" else {ARGUMENT})


@pytest.mark.parametrize(
    "variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "HTTP_PROXY"]
)
def test_a_password_in_the_address_of_an_endpoint(tmp_path: Path, variable: str) -> None:
    """Not ours to refuse, but never sent, also when the endpoint cannot be reached or is nonsense."""
    for port in ("1", "99999999"):
        place = tmp_path / port
        place.mkdir()
        with trial(place) as run:
            url = f"http://me:{ENDPOINT}@127.0.0.1:{port}"
            proxied = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://192.0.2.1"} if variable == "HTTP_PROXY" else {}
            variables = run.variables(**{variable: url, "http_proxy": url if proxied else "", **proxied})
            command = run.command(["sleep", "0.5"], "--receive-otlp", "--metric-interval", "0.2")
            outcome = run.run(command, env=variables)
            assert outcome.code == 0, outcome.err
            assert found(outcome.err) == set(), outcome.err
            assert "Traceback" not in outcome.err
            for path in run.out.iterdir():
                assert found(path.read_bytes()) == set(), path


def test_every_port_is_a_loopback_port(tmp_path: Path) -> None:
    """Of the endpoint for Prometheus and of the receiver, unless an option names an address."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(["sleep", "60"], "--prometheus", "0", "--receive-otlp"))
        wait_for(lambda: "http://" in (tmp_path / "stderr-0").read_text())
        addresses = _listening(wrapped.pid)
        os.kill(wrapped.pid, signal.SIGTERM)
        run.wait(wrapped)
    assert len(addresses) == 2
    assert {socket.inet_ntoa(bytes.fromhex(address)[::-1]) for address in addresses} == {"127.0.0.1"}


def _listening(pid: int) -> list[str]:
    """Local addresses of the process's listening TCP sockets, as /proc/net writes them."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    assert inodes, "no sockets"
    found_addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found_addresses.append(fields[1].partition(":")[0])
    return found_addresses
