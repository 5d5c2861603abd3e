"""Telemetry of real jobs under the real command."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from otel_memwatch.run import load
from tests.support.control_group import group
from tests.support.otlp_sink import OtlpSink, attributes
from tests.support.peers import Prometheus, free_port, needed

WRAP = [sys.executable, "-m", "otel_memwatch", "wrap", "--no-plot"]
DATA = Path(__file__).parents[1] / "data"
PROGRAMS = Path(__file__).parents[1] / "programs"

JOB = str(PROGRAMS / "load_and_train.py")


def _environment(**changes):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TRACE"))}
    return {**kept, **changes}


def _wrap(directory, *arguments, **more):
    more.setdefault("env", _environment())
    return subprocess.run(
        [*WRAP, "--out", str(directory), *arguments], capture_output=True, text=True, timeout=120, **more
    )


@pytest.fixture
def sink():
    sink = OtlpSink()
    yield sink
    sink.close()
    assert sink.defects == []


@pytest.mark.thorough
def test_twenty_short_jobs_arrive_with_their_peaks(sink, tmp_path):
    outcomes = []
    for first in range(0, 20, 4):
        jobs = [
            subprocess.Popen(
                [*WRAP, "--quiet", "--no-report", "--otlp", sink.url, "--out", str(tmp_path / f"run-{number}"), "--",
                 sys.executable, JOB, str(1 + number % 3)],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment(),
            )
            for number in range(first, first + 4)
        ]  # fmt: skip
        outcomes += [(job.communicate(timeout=120)[1], job.returncode) for job in jobs]
    assert outcomes == [(b"", 0)] * 20
    arrived = {}
    for resource, metric, point in sink.metrics():
        if metric.name == "memwatch.tree.memory.peak":
            arrived[resource["memwatch.run.id"]] = point.as_int
    runs = {f"run-{number}": load(tmp_path / f"run-{number}") for number in range(20)}
    assert arrived == {name: run.peaks.tree.bytes for name, run in runs.items()}
    assert min(arrived.values()) > 70 << 20
    ended = [s for _, s in sink.spans() if s.name.startswith("python")]
    assert {attributes(span)["memwatch.run.id"] for span in ended} == set(runs)
    assert {span.span_id.hex() for span in ended} == {run.trace["span_id"] for run in runs.values()}


def test_the_trace_of_a_ci_system_is_continued(sink, tmp_path):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    env = _environment(
        TRACEPARENT=parent, GITHUB_ACTIONS="true", GITHUB_RUN_ID="55", OTEL_EXPORTER_OTLP_ENDPOINT=sink.url,
        OTEL_MEMWATCH_OPERATION_METRICS="histograms",
    )  # fmt: skip
    done = _wrap(tmp_path / "run", "--", sys.executable, JOB, "0.6", env=env)
    assert done.returncode == 0
    assert done.stdout == "done\n"
    spans = {span.name: (resource, span) for resource, span in sink.spans()}
    python = os.path.basename(sys.executable)
    assert set(spans) == {python, "Load", "Train"}
    resource, run = spans[python]
    assert run.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert run.parent_span_id.hex() == "b7ad6b7169203331"
    assert attributes(run)["cicd.pipeline.run.id"] == "55"
    assert "cicd.pipeline.run.id" not in resource
    for name in ("Load", "Train"):
        assert spans[name][1].parent_span_id == run.span_id
    assert attributes(spans["Load"][1])["memwatch.memory.peak"] > 70 << 20
    assert attributes(spans["Train"][1])["batch"] == 7
    exemplars = [
        exemplar.span_id for _, metric, point in sink.metrics() if metric.name == "memwatch.operation.memory.peak"
        for exemplar in point.exemplars
    ]  # fmt: skip
    assert spans["Load"][1].span_id in exemplars


def test_a_killed_job_says_so(sink, tmp_path):
    done = _wrap(
        tmp_path / "run", "--otlp", sink.url, "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"
    )
    assert done.returncode == -signal.SIGKILL
    (span,) = [span for _, span in sink.spans()]
    assert attributes(span)["memwatch.exit.signal"] == 9
    assert span.status.code == 2
    codes = [point.as_int for _, metric, point in sink.metrics() if metric.name == "memwatch.run.exit.code"]
    assert codes == [137]


def test_a_run_is_one_wide_event_at_its_end(sink, tmp_path):
    env = _environment(GITHUB_ACTIONS="true", GITHUB_RUN_ID="55")
    done = _wrap(tmp_path / "run", "--otlp", sink.url, "--", sys.executable, JOB, "0.3", env=env)
    assert done.returncode == 0
    ((resource, record),) = sink.events()
    run, said = load(tmp_path / "run"), attributes(record)
    assert resource["service.name"] == os.path.basename(sys.executable)
    assert (record.event_name, record.severity_text) == ("memwatch.run.ended", "INFO")
    assert record.span_id.hex() == run.trace["span_id"]
    assert (said["memwatch.memory.peak"], said["process.exit.code"]) == (run.peaks.tree.bytes, 0)
    assert said["cicd.pipeline.run.id"] == "55"
    assert said["system.memory.limit"] > 1 << 30
    assert said["memwatch.run.duration"] == pytest.approx(run.seconds, abs=0.1)


def test_each_oom_kill_is_an_event_while_the_job_goes_on(sink, tmp_path):
    with group(64 << 20) as place:
        go_on = tmp_path / "go"
        script = f"{sys.executable} -c 'x = bytearray(200 << 20)'; while [ ! -e {go_on} ]; do sleep 0.1; done"
        job = subprocess.Popen(
            [*WRAP, "--quiet", "--out", str(tmp_path / "run"), "--otlp", sink.url, "--", "sh", "-c", script],
            env=_environment(),
            stderr=subprocess.PIPE,
            preexec_fn=place.enter,  # noqa: PLW1509 - no threads here
        )
        until = time.monotonic() + 60
        while not (killed := list(sink.events())) and time.monotonic() < until:
            time.sleep(0.1)
        go_on.touch()
        assert job.wait(60) == 0, job.stderr.read()
        job.stderr.close()
    ((_, record),) = killed
    assert (record.event_name, record.severity_text) == ("memwatch.oom_kill", "ERROR")
    assert attributes(record)["memwatch.oom_kills"] == 1
    assert attributes(record)["memwatch.cgroup.memory.limit"] == 64 << 20
    (ended,) = [record for _, record in sink.events() if record.event_name == "memwatch.run.ended"]
    assert attributes(ended)["memwatch.oom_kills"] == 1


@pytest.mark.parametrize("logs", ["404", "none"])
def test_an_endpoint_without_logs_is_nothing_to_tell_of(tmp_path, logs):
    asked = []

    def answer(path):
        asked.append(path)
        return (404, "text/plain", b"") if path == "/v1/logs" else None

    sink = OtlpSink(answer)
    try:
        variables = {} if logs == "404" else {"OTEL_LOGS_EXPORTER": logs}
        done = _wrap(
            tmp_path / "run", "--quiet", "--otlp", sink.url, "--", "true", env=_environment(**variables)
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert list(sink.spans())
        assert ("/v1/logs" in asked) == (logs == "404")
    finally:
        sink.close()


@pytest.mark.quiet  # one operation of a second has to meet a scrape
def test_prometheus_scrapes_a_job_and_sees_its_end(tmp_path):
    port = free_port()
    server = Prometheus(tmp_path / "prometheus", [f"127.0.0.1:{port}"])
    try:
        job = subprocess.Popen(
            [*WRAP, "--out", str(tmp_path / "run"), "--prometheus", str(port), "--linger", "60", "--", sys.executable, JOB, "3"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment(),
        )  # fmt: skip
        server.wait(
            lambda: server.query('memwatch_operation_active{memwatch_operation_name="Load"} == 1'), 60
        )
        assert float(server.query("memwatch_run_active")[0]["value"][1]) == 1
        errors = job.communicate(timeout=120)[1].decode()
        assert job.returncode == 0
        assert f"metrics for Prometheus: http://127.0.0.1:{port}/metrics" in errors
        run = load(tmp_path / "run")
        found = server.wait(lambda: server.query("last_over_time(memwatch_run_exit_code[5m])"))
        assert float(found[0]["value"][1]) == 0
        peak = server.query("last_over_time(memwatch_tree_memory_peak_bytes[5m])")
        assert int(float(peak[0]["value"][1])) == run.peaks.tree.bytes
        columns = {column.metric for column in run.record.columns}
        assert {"process.memory.usage", "memwatch.tree.cpu.time", "system.memory.limit"} <= columns
    finally:
        server.close()


OPERATIONS = """
from otel_memwatch import operation
for number in range(10):
    with operation(f"step {number}"):
        pass
"""


@pytest.mark.parametrize(
    ("program", "options", "most"),
    [
        ("pass", ["--metrics", "minimal"], 17),
        ("pass", [], 43),
        (OPERATIONS, [], 120),
        (OPERATIONS, ["--operation-metrics", "off"], 43),
        ("pass", ["--metrics", "none"], 0),
    ],
)
def test_a_job_has_no_more_series_than_was_asked_for(sink, tmp_path, program, options, most):
    environment = _environment(PYTHONPATH=str(Path(__file__).parents[2]))
    command = ["--otlp", sink.url, *options, "--", sys.executable, "-c", program]
    done = _wrap(tmp_path / "run", *command, env=environment)
    assert done.returncode == 0, done.stderr
    series = {(metric.name, tuple(sorted(attributes(point).items()))) for _, metric, point in sink.metrics()}
    assert len(series) <= most
    assert bool(series) == bool(most)
    assert len(list(sink.spans())) == (11 if program is OPERATIONS else 1)


def test_a_signal_ends_the_lingering(tmp_path):
    job = subprocess.Popen(
        [*WRAP, "--quiet", "--out", str(tmp_path / "run"), "--prometheus", "0", "--linger", "600", "--", "true"],
        stderr=subprocess.PIPE, env=_environment(),
    )  # fmt: skip
    until = time.monotonic() + 60
    while time.monotonic() < until:
        info = tmp_path / "run" / "run.json"
        if info.exists() and json.loads(info.read_text())["state"] == "finished":
            break
        time.sleep(0.1)
    assert job.poll() is None, "it lingers"
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert job.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--otlp", "collector:4318"],
            "--otlp: 'collector:4318' is not a URL such as http://127.0.0.1:4318.",
        ),
        (["--otlp", "http://u:p@c"], "--otlp: the URL contains a password and would be recorded"),
        (
            ["--otlp", "http://c", "--otlp-protocol", "smoke"],
            "--otlp-protocol: 'smoke' is not one of http/protobuf, grpc.",
        ),
        (["--prometheus", "99999"], "--prometheus: '99999' is not [HOST:]PORT"),
        (["--textfile", "x.txt"], "--textfile: 'x.txt' does not end in .prom"),
        (["--linger", "-1"], "--linger: '-1' is not a duration"),
        (["--metric-interval", "0"], "--metric-interval: '0' is not between"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_started(tmp_path, arguments, expected):
    done = _wrap(tmp_path / "run", *arguments, "--", "touch", str(tmp_path / "started"))
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "started").exists()
    assert not (tmp_path / "run").exists()


def test_what_goes_wrong_later_is_one_sentence_and_the_job_is_unharmed(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = _wrap(
            tmp_path / "run", "--quiet", "--prometheus", str(taken.getsockname()[1]), "--otlp", "http://127.0.0.1:9",
            "--textfile", str(tmp_path / "none" / "x.prom"), "--", sys.executable, JOB, "0.5",
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n")
    lines = done.stderr.splitlines()
    assert len(lines) == 3, done.stderr
    assert re.search(
        r"Prometheus cannot be served at 127\.0\.0\.1:\d+: Address already in use\.", done.stderr
    )
    assert "the OTLP endpoint http://127.0.0.1:9 refuses connections" in done.stderr
    assert "x.prom cannot be written: No such file or directory" in done.stderr
    marks = [mark["text"] for mark in json.loads((tmp_path / "run" / "run.json").read_text())["marks"]]
    assert len(marks) == 3


def test_what_could_not_be_delivered_can_be_replayed(sink, tmp_path):
    done = _wrap(
        tmp_path / "run", "--quiet", "--otlp", "http://127.0.0.1:9", "--", sys.executable, JOB, "0.5"
    )
    command = re.search(r"otel-memwatch (replay .*) --otlp", done.stderr)[1].split()
    again = subprocess.run(
        [*WRAP[:3], *command, "--otlp", sink.url], capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    assert {"Load", "Train"} <= {span.name for _, span in sink.spans()}
    peaks = [
        point.as_int for _, metric, point in sink.metrics() if metric.name == "memwatch.tree.memory.peak"
    ]
    assert peaks == [load(tmp_path / "run").peaks.tree.bytes]


def test_an_exporting_monitor_stays_small(sink, tmp_path):
    """Budget: 50 MiB with everything on."""
    job = subprocess.Popen(
        [*WRAP, "--quiet", "--no-report", "--out", str(tmp_path / "run"), "--prometheus", "0", "--otlp", sink.url,
         "--metric-interval", "0.5", "--", sys.executable, JOB, "4"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment(),
    )  # fmt: skip
    line = job.stderr.readline().decode()
    url = re.search(r"http://\S+", line)[0]
    largest = 0
    for _ in range(5):
        text = urllib.request.urlopen(url, timeout=20).read().decode()
        largest = max(
            largest, float(re.search(r"^memwatch_monitor_memory_usage_bytes (\S+)", text, re.MULTILINE)[1])
        )
        time.sleep(0.4)
    job.communicate(timeout=120)
    assert job.returncode == 0
    assert largest < 50 << 20, f"{largest / 2**20:.1f} MiB"


def test_a_run_without_telemetry_loads_none_of_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *WRAP[1:], "--out", str(tmp_path / "run"), "--", "sleep", "1"],
        capture_output=True, text=True, timeout=60, env=_environment(),
    )  # fmt: skip
    assert done.returncode == 0
    loaded = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "otel_memwatch.monitor.recording.recording" in loaded
    assert not {name for name in loaded if name.startswith("otel_memwatch.monitor.telemetry")}
    assert not {name.partition(".")[0] for name in loaded} & {
        "opentelemetry",
        "requests",
        "urllib3",
        "grpc",
        "google",
    }


BURST = str(PROGRAMS / "burst.py")


def test_a_burst_of_operations_arrives_whole_while_the_job_goes_on(sink, tmp_path):
    """Ten times as many as the SDK's queue holds, faster than any endpoint takes them."""
    job = subprocess.Popen(
        [*WRAP, "--quiet", "--no-report", "--out", str(tmp_path / "run"), "--otlp", sink.url, "--", sys.executable, BURST, "20000", str(tmp_path / "go")],
        stderr=subprocess.PIPE, env=_environment(),
    )  # fmt: skip
    until = time.monotonic() + 120
    while sum(1 for _ in sink.spans()) < 20_000 and time.monotonic() < until:
        time.sleep(0.5)
    (tmp_path / "go").touch()
    errors = job.communicate(timeout=120)[1]
    assert (job.returncode, errors) == (0, b"")
    spans = [span for _, span in sink.spans()]
    assert len({span.span_id for span in spans}) == len(spans) == 20_001
    counts = [
        point.as_int for _, metric, point in sink.metrics() if metric.name == "memwatch.operation.count"
    ]
    assert counts[-1] == 20_000


# -- the target's own spans


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """A directory with OpenTelemetry's JavaScript SDK, from npm."""
    needed("node")
    npm = needed("npm")
    directory = tmp_path_factory.mktemp("node")
    shutil.copy(DATA / "node" / "package.json", directory)
    shutil.copy(DATA / "node" / "traced.js", directory)
    installed = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=directory,
        capture_output=True,
        timeout=300,
    )
    if installed.returncode:
        message = f"npm could not install the SDK: {installed.stderr.decode()[-300:]}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return directory


@pytest.mark.parametrize(
    ("compression", "encoding"),
    [
        ("none", "protobuf"),
        ("gzip", "json"),
        pytest.param("none", "json", marks=pytest.mark.thorough),
        pytest.param("gzip", "protobuf", marks=pytest.mark.thorough),
    ],
)
def test_spans_of_a_node_program_become_operations_and_reach_their_endpoint(
    sink, node, tmp_path, encoding, compression
):
    env = _environment(
        OTEL_EXPORTER_OTLP_ENDPOINT=sink.url,
        OTEL_EXPORTER_OTLP_COMPRESSION=compression,
        OTEL_SERVICE_NAME="from-node",
    )
    if encoding == "json":
        env["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/json"
        sink.answer = lambda path: (200, "application/json", b"{}") if path == "/v1/traces" else None
    done = _wrap(tmp_path / "run", "--receive-otlp", "--", "node", str(node / "traced.js"), encoding, env=env)
    assert done.returncode == 0, done.stderr
    run = load(tmp_path / "run")
    outer, inner = (figures.operation for figures in run.operations)
    assert (outer.name, inner.name) == ("Outer", "Inner")
    assert outer.trace_id == inner.trace_id == run.trace["trace_id"]
    assert outer.parent_span_id == run.trace["span_id"]
    assert inner.parent_span_id == outer.span_id
    assert inner.status == "error"
    assert inner.attributes["held"] == 80 << 20
    assert run.operations[1].depth == 1
    assert run.operations[0].tree_peak.bytes > 80 << 20
    assert 0.29 < run.operations[1].seconds < 5  # timers of node may be early by a millisecond
    assert "Outer" in done.stderr
    if encoding == "protobuf":
        spans = {span.name: span for _, span in sink.spans()}
        assert set(spans) == {"Outer", "Inner", "node"}, "forwarded once, beside the run's own span"
        assert spans["Inner"].span_id.hex() == inner.span_id


def test_a_program_without_spans_is_not_disturbed_by_the_receiver(tmp_path):
    done = _wrap(tmp_path / "run", "--quiet", "--receive-otlp", "--", sys.executable, "-c", "print('x')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")


def test_spans_of_a_python_program_without_a_collector(tmp_path):
    program = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
with provider.get_tracer("x").start_as_current_span("Alone"):
    block = b"x" * (60 << 20)
"""
    done = _wrap(tmp_path / "run", "--quiet", "--receive-otlp", "--", sys.executable, "-c", program)
    assert (done.returncode, done.stderr) == (0, "")
    assert [figures.operation.name for figures in load(tmp_path / "run").operations] == ["Alone"]


def test_the_run_is_linked_with_the_traces_that_its_program_began(sink, tmp_path):
    """An SDK that does not look at TRACEPARENT begins separate traces: from the run one gets to them."""
    program = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("x")
for name in ("First", "Second"):
    with tracer.start_as_current_span(name), tracer.start_as_current_span("Inner"):
        pass
"""
    env = _environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url)
    done = _wrap(tmp_path / "run", "--quiet", "--receive-otlp", "--", sys.executable, "-c", program, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    spans = [span for _, span in sink.spans()]
    (run,) = (span for span in spans if span.name.startswith("python"))
    roots = {span.span_id for span in spans if span.name in ("First", "Second")}
    assert len(roots) == 2
    assert {link.span_id for link in run.links} == roots
    assert {link.trace_id for link in run.links} == {span.trace_id for span in spans if span is not run}


def test_what_vendors_say_of_the_trace_is_on_the_runs_span_live_and_replayed(sink, tmp_path):
    env = _environment(TRACEPARENT=f"00-{'ab' * 16}-{'cd' * 8}-01", TRACESTATE="vendor=x,other=1")
    done = _wrap(tmp_path / "run", "--quiet", "--otlp", sink.url, "--", "true", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    replay = [sys.executable, "-m", "otel_memwatch", "replay", str(tmp_path / "run"), "--otlp", sink.url]
    subprocess.run(replay, check=True, capture_output=True, timeout=60)
    spans = [span for _, span in sink.spans()]
    assert [span.trace_state for span in spans] == ["vendor=x,other=1"] * 2
