"""A recorded run in other formats, each judged by a reader that is not ours; and runs that come back."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from otel_memwatch import reports
from otel_memwatch.catalog import METRICS, prometheus_names
from otel_memwatch.errors import RunError
from otel_memwatch.run import load
from tests.support.otlp_sink import OtlpSink, attributes
from tests.support.peers import Prometheus, needed
from tests.support.programs import need
from tests.support.run_directory import MIB, RunDirectory, column

PROGRAM = """
import time
from otel_memwatch.in_target.operations import operation
with operation("Load"):
    block = b"x" * (80 << 20); time.sleep(0.7)
    with operation("Inner"):
        time.sleep(0.3)
time.sleep(0.4)
raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A real run, recorded by the real command."""
    path = tmp_path_factory.mktemp("exports") / "run"
    command = [
        sys.executable,
        "-m",
        "otel_memwatch",
        "wrap",
        "--quiet",
        "--no-plot",
        "--out",
        str(path),
        "--",
    ]
    environment = {**os.environ, "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=lab"}
    ended = subprocess.run([*command, sys.executable, "-c", PROGRAM], env=environment, timeout=120)
    assert ended.returncode == 3
    return load(path)


def _written(name, run, **options):
    out = io.BytesIO()
    reports.render(name, run, out, **options)
    return out.getvalue()


def test_every_format_is_offered(recorded):
    for name in ("otlp", "otlp-traces", "openmetrics", "perfetto", "parquet"):
        assert reports.REPORTS[name].exported
        assert _written(name, recorded)


def test_otlp_lines_are_requests_that_an_endpoint_takes(recorded):
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from otel_memwatch.record.otlp_json import parse_json

    sink = OtlpSink()
    try:
        for name, kind, path in (
            ("otlp", ExportMetricsServiceRequest, "/v1/metrics"),
            ("otlp-traces", ExportTraceServiceRequest, "/v1/traces"),
        ):
            lines = _written(name, recorded).splitlines(keepends=True)
            assert all(line.endswith(b"\n") and len(line) < 1 << 20 for line in lines)
            for line in lines:
                headers = {"content-type": "application/x-protobuf"}
                sink.take(path, headers, parse_json(line, kind()).SerializeToString())
        points = list(sink.metrics())
        spans = {span.name: span for _, span in sink.spans()}
    finally:
        sink.close()
    usage = [(p.time_unix_nano, p.as_int) for _, m, p in points if m.name == "process.memory.usage"]
    times, values = recorded.samples().known(recorded.samples().find("process.memory.usage")[0])
    assert [value for _, value in usage] == [int(value) for value in values]
    assert usage[0][0] == pytest.approx((recorded.started_wall + times[0]) * 1e9, abs=1e7)
    final = {m.name: p for _, m, p in points}
    assert final["memwatch.run.exit.code"].as_int == 3
    assert final["memwatch.tree.memory.peak"].as_int == recorded.peaks.tree.bytes
    assert final["memwatch.operation.duration"].count == 1
    assert set(spans) == {os.path.basename(sys.executable), "Load", "Inner"}
    assert spans["Inner"].parent_span_id == spans["Load"].span_id
    assert attributes(spans["Load"])["memwatch.memory.peak"] >= 80 << 20
    assert spans[os.path.basename(sys.executable)].status.code == 2


def test_prometheus_answers_from_blocks_made_of_openmetrics(recorded, tmp_path):
    text = tmp_path / "run.om"
    text.write_bytes(_written("openmetrics", recorded))
    data = tmp_path / "data"
    made = subprocess.run(
        [needed("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)],
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr.decode()
    server = Prometheus(tmp_path / "prometheus", data=data)
    try:
        end = recorded.started_wall + _last(recorded) + 2
        for column in recorded.record.columns:
            _, values = recorded.samples().known(column)
            if len(values):
                name = prometheus_names(METRICS[column.metric])[0]
                labels = ",".join(f'{k.replace(".", "_")}="{v}"' for k, v in column.attributes)
                found = server.query(f"last_over_time({name}{{{labels}}}[10m])", time=end)
                assert float(found[0]["value"][1]) == pytest.approx(values[-1], rel=1e-9), column
                assert found[0]["metric"]["job"].startswith("lab/python")
        peak = server.query("last_over_time(memwatch_tree_memory_peak_bytes[10m])", time=end + 1)
        assert int(float(peak[0]["value"][1])) == recorded.peaks.tree.bytes
    finally:
        server.close()


def test_perfetto_gets_curves_operations_and_processes(recorded):
    trace = json.loads(_written("perfetto", recorded))
    events = trace["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "b", "e", "C"}
    begun = {event["name"]: event for event in events if event["ph"] == "b"}
    ended = {event["name"]: event for event in events if event["ph"] == "e"}
    assert set(begun) == set(ended) == {"Load", "Inner"}
    assert begun["Load"]["ts"] < begun["Inner"]["ts"] < ended["Inner"]["ts"] <= ended["Load"]["ts"]
    usage = [
        e["args"]["value"] for e in events if e["ph"] == "C" and e["name"].startswith("process.memory.usage")
    ]
    assert max(usage) == max(recorded.samples().known(recorded.samples().find("process.memory.usage")[0])[1])
    assert any(e["ph"] == "X" and e.get("cat") == "process" for e in events)


def test_parquet_holds_every_tick(recorded, tmp_path):
    pyarrow = need("pyarrow.parquet")
    path = tmp_path / "run.parquet"
    path.write_bytes(_written("parquet", recorded))
    table = pyarrow.read_table(path)
    assert table.num_rows == len(recorded.samples())
    assert set(table.column_names) >= {
        "time",
        "wall",
        "process.memory.usage",
        "memwatch.tree.disk.io{disk.io.direction=read}",
    }
    column = table.column("process.memory.usage").to_pylist()
    ticks = [values for _, values in recorded.record.sample_values()]
    place = [c.metric for c in recorded.record.columns].index("process.memory.usage")
    assert column == [values[place] for values in ticks]
    assert json.loads(table.schema.metadata[b"memwatch"])["id"] == recorded.id


# -- and back


def _last(run):
    """Seconds from the start to the end, or to the last tick: that comes after the end, by much on a busy machine."""
    return max(run.seconds, run.samples().time[-1])


def _same(recorded, back):
    assert back.id == recorded.id
    assert back.state == "finished"
    assert back.ending.exit_code == 3
    assert back.peaks.tree.bytes == recorded.peaks.tree.bytes
    assert back.peaks.tree.certainty == recorded.peaks.tree.certainty
    column = recorded.samples().find("memwatch.tree.memory.usage")[0]
    assert list(back.samples().known(column)[1]) == list(recorded.samples().known(column)[1])
    # Without the run's span it begins with its first tick, which is late on a busy machine.
    late = recorded.samples().known(column)[0][0]
    assert recorded.seconds - late - 0.2 < back.seconds < _last(recorded) + 0.2


def test_a_run_comes_back_from_the_lines_that_it_wrote(recorded, tmp_path):
    directory = tmp_path / "copy"
    directory.mkdir()
    (directory / "metrics.otlp.jsonl").write_bytes(_written("otlp", recorded))
    (directory / "traces.otlp.jsonl").write_bytes(_written("otlp-traces", recorded))
    back = load(directory)
    _same(recorded, back)
    assert [figures.operation.name for figures in back.operations] == ["Load", "Inner"]
    peaks = [run.operations[0].operation.peak for run in (back, recorded)]
    assert len({(peak.certainty, peak.low, peak.high, peak.estimate or peak.bytes) for peak in peaks}) == 1
    assert back.operations[1].depth == 1
    assert back.trace["span_id"] == recorded.trace["span_id"]
    for name in ("text", "summary", "json", "plot", "csv"):
        assert _written(name, back, suffix=".png")


TENTH = MIB // 10


@pytest.mark.parametrize("with_spans", [False, True])
def test_an_export_keeps_the_certainty_of_each_peak(tmp_path, with_spans):
    """Without a cgroup near bounds of the tree are a range, since kernel memory is in neither; a process may be exact."""
    near = {"bytes": 667 * TENTH, "low": 667 * TENTH, "high": 674 * TENTH, "estimate": 670 * TENTH}
    near |= {"excludes": ["kernel", "files in memory"], "excluded_bytes": 5 * TENTH}
    exact = {"bytes": 690 * TENTH, "low": 685 * TENTH, "high": 695 * TENTH, "certainty": "exact"}
    censored = {"bytes": 90 * TENTH, "low": None, "high": 90 * TENTH, "certainty": "censored"}
    built = RunDirectory(tmp_path / "run")
    built.columns([column("process.memory.usage")])
    built.tick(0.5, 60 * MIB)
    built.write_info(peaks={"tree": near | {"certainty": "interval"}, "process": exact, "main": censored})
    run = load(built.path)
    directory = tmp_path / "back"
    directory.mkdir()
    (directory / "metrics.otlp.jsonl").write_bytes(_written("otlp", run))
    if with_spans:
        (directory / "traces.otlp.jsonl").write_bytes(_written("otlp-traces", run))
    back = load(directory).peaks
    for name in ("tree", "process", "main"):
        peak, found = getattr(run.peaks, name), getattr(back, name)
        assert found[:4] == peak[:4], name
        assert found.estimate == peak.estimate
        assert (found.excludes, found.excluded_bytes) == (peak.excludes, peak.excluded_bytes)
        assert found.how == "OTLP"


def test_a_file_of_another_program_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "other.jsonl"
    point = {"timeUnixNano": 1700000000000000000, "asInt": 3}
    scope = {"metrics": [{"name": "x", "gauge": {"dataPoints": [point]}}]}
    path.write_text(json.dumps({"resourceMetrics": [{"resource": {}, "scopeMetrics": [scope]}]}) + "\n")
    with pytest.raises(RunError, match="was not exported by otel-memwatch"):
        load(path)


def test_a_collectors_file_with_several_services_gives_the_one_with_most_data(recorded, tmp_path):
    path = tmp_path / "from-collector.jsonl"
    other = {
        "resourceMetrics": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "other"}}]},
                "scopeMetrics": [
                    {
                        "metrics": [
                            {
                                "name": "x",
                                "gauge": {"dataPoints": [{"timeUnixNano": 1700000000000000000, "asInt": 3}]},
                            }
                        ]
                    }
                ],
            }
        ]
    }
    logs = b'{"resourceLogs":[]}\n'
    torn = _written("otlp", recorded)[:300]
    path.write_bytes(json.dumps(other).encode() + b"\n" + _written("otlp", recorded) + logs + b"{}\n" + torn)
    back = load(path)
    _same(recorded, back)
    damage = " ".join(back.damage)
    assert "holds 2 services" in damage
    assert "other" in damage
    assert "1 line could not be read" in damage


@pytest.mark.parametrize("ended", [True, False])
def test_what_was_exact_so_far_is_a_lower_bound_of_a_run_without_an_end(recorded, tmp_path, ended):
    """A Collector's file of a run whose monitor was killed: the last figures of the ticks, no exit code, no span."""
    path = tmp_path / "live.jsonl"
    text = _written("otlp", recorded).replace(b'"interval"', b'"exact"').replace(b'"censored"', b'"exact"')
    path.write_bytes(text if ended else text.replace(b"memwatch.run.exit.code", b"memwatch.run.unknown"))
    tree = load(path).peaks.tree
    assert (tree.certainty.value, tree.high is None) == (("exact", False) if ended else ("interval", True))


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00\x00\x01\x02binary", b"{}\n[]\n"])
def test_a_file_without_otlp_is_refused_in_one_sentence(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(RunError, match="holds no OTLP JSON lines"):
        load(path)


# -- replay


def _replay(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "otel_memwatch", "replay", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, env={**os.environ, **environment},
    )  # fmt: skip


def test_a_recorded_run_is_sent_with_its_times_and_ids(recorded):
    sink = OtlpSink()
    done = _replay(recorded.path, "--otlp", sink.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert sink.defects == []
    times = [p.time_unix_nano / 1e9 for _, m, p in sink.metrics() if m.name == "memwatch.tree.memory.usage"]
    assert times[0] >= recorded.started_wall - 0.01
    assert times[-1] <= recorded.started_wall + _last(recorded) + 1
    assert {span.span_id.hex() for _, span in sink.spans()} >= {recorded.trace["span_id"]}
    assert {headers["content-encoding"] for _, headers, _ in sink.requests} == {"gzip"}
    sink.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((200, "text/html", b"<html>"), "answers 200 with text/html: it is no OTLP endpoint."),
        (
            (404, "text/plain", b"404 page not found"),
            "answers 404 Not Found: 404 page not found (is it an OTLP endpoint?).",
        ),
        ((400, "text/plain", b"out of order"), "answers 400 Bad Request: out of order."),
    ],
)
def test_replay_says_what_the_endpoint_did_not_like(recorded, answer, expected):
    sink = OtlpSink(lambda _path: answer)
    done = _replay(recorded.path, "--otlp", sink.url)
    sink.close()
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    # Of an endpoint that does not know log records there is no warning.
    signals = 2 if answer[0] == 404 else 3
    assert [expected in line for line in lines] == [True] * signals, "one sentence for each signal"


def test_what_is_replayed_is_what_was_sent_live(tmp_path):
    """The event of the end to the last attribute, and of the metrics those that the run was to send."""
    live, later, all_of_them = OtlpSink(), OtlpSink(), OtlpSink()
    directory = tmp_path / "run"
    program = "from otel_memwatch import operation\nwith operation('Load'):\n    pass\nraise SystemExit(3)"
    done = subprocess.run(
        [sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--otlp", live.url, "--metrics", "minimal",
         "--out", str(directory), "--", sys.executable, "-c", program],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "")
    assert _replay(directory, "--otlp", later.url).returncode == 0
    more = _replay(directory, "--otlp", all_of_them.url, "--metrics=all", "--operation-metrics=histograms")
    assert more.returncode == 0

    def event(sink):
        ((resource, record),) = sink.events()
        told = attributes(record)
        duration = told.pop("memwatch.run.duration")
        who = {name: value for name, value in resource.items() if not name.startswith("telemetry.")}
        return (
            who, record.event_name, record.severity_number, record.body.string_value, record.trace_id, record.span_id,
            told, round(duration, 1), round(record.time_unix_nano / 1e9),
        )  # fmt: skip

    def names(sink):
        return {metric.name for _, metric, _ in sink.metrics()}

    assert event(live) == event(later)
    # What the monitor reports about itself, and what only goes on while a run does, is not recorded.
    assert names(live) - {"memwatch.operation.active"} == names(later)
    assert len(names(later)) < 20 < 40 < len(names(all_of_them))
    assert "memwatch.operation.memory.peak" in names(all_of_them) - names(later)
    for sink in (live, later, all_of_them):
        assert sink.defects == []
        sink.close()


def test_one_signal_that_is_refused_does_not_keep_the_other_back(recorded):
    sink = OtlpSink(lambda path: (404, "text/plain", b"no metrics here") if path == "/v1/metrics" else None)
    done = _replay(recorded.path, "--otlp", sink.url)
    spans = [span.name for _, span in sink.spans()]
    sink.close()
    assert done.returncode == 1
    assert {"Load", "Inner"} <= set(spans)
    assert "traces: 1 requests sent" in done.stderr
    assert "/v1/metrics answers 404 Not Found: no metrics here" in done.stderr


def test_replay_in_vain(recorded, tmp_path):
    refused = _replay(recorded.path, "--otlp", "http://127.0.0.1:9")
    assert refused.returncode == 1
    assert "http://127.0.0.1:9/v1/metrics refuses connections." in refused.stderr
    nowhere = _replay(recorded.path, OTEL_EXPORTER_OTLP_ENDPOINT="")
    assert nowhere.returncode == 2
    assert "no endpoint to send to" in nowhere.stderr
    malformed = _replay(recorded.path, "--otlp", "collector:4318")
    assert malformed.returncode == 2
    assert "is not a URL" in malformed.stderr
    missing = _replay(tmp_path / "none", "--otlp", "http://127.0.0.1:9")
    assert missing.returncode == 1
    assert "There is no run" in missing.stderr
    for done in (refused, nowhere, malformed, missing):
        assert done.stderr.count("\n") == 1


def test_replay_shows_what_was_rejected(recorded):
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 7
    answer.partial_success.error_message = "sample is too old"
    sink = OtlpSink(lambda _path: (200, "application/x-protobuf", answer.SerializeToString()))
    done = _replay(recorded.path, "--otlp", sink.url, "--signal", "metrics")
    sink.close()
    assert done.returncode == 1
    assert "points of them: sample is too old" in done.stderr
    assert "out_of_order_time_window" in done.stderr
