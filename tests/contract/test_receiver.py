"""The OTLP receiver of --receive-otlp: every encoding, every bad body, forwarding, and what becomes of the spans."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import zlib

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.telemetry.otlp_receiver.server import MAX_BODY, Receiver
from otel_memwatch.monitor.telemetry.otlp_receiver.socket import listen
from otel_memwatch.monitor.telemetry.otlp_receiver.store import ReceivedSpans
from otel_memwatch.record.open import read_run
from otel_memwatch.record.otlp_json import parse_json, to_json
from tests.support.otlp_sink import OtlpSink
from tests.support.programs import need

PROTOBUF, JSON = "application/x-protobuf", "application/json"
PID, OFFSET = 4242, 1_700_000_000.0


def _request(count=1, pid=PID, first=1):
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "theirs"
    if pid is not None:
        group.resource.attributes.add(key="process.pid").value.int_value = pid
    spans = group.scope_spans.add().spans
    for number in range(first, first + count):
        span = spans.add(
            trace_id=bytes.fromhex("0af7651916cd43dd8448eb211c80319c"),
            span_id=number.to_bytes(8, "big"),
            parent_span_id=bytes.fromhex("b7ad6b7169203331"),
            name=f"step {number}",
            start_time_unix_nano=int((OFFSET + 10 + number) * 1e9),
            end_time_unix_nano=int((OFFSET + 10.5 + number) * 1e9),
        )
        span.attributes.add(key="batch").value.int_value = number
    return request


class _Received:
    def __init__(self, directory, environment):
        self.directory = directory
        self.listening = listen(environment)
        self.troubles = []
        (directory / "run.json").write_text(
            json.dumps(
                {
                    "schema": 1,
                    "state": "finished",
                    "target": {"pid": PID},
                    "started": {"wall": OFFSET, "monotonic": 0},
                }
            )
        )
        self.receiver = Receiver(self.listening, ReceivedSpans(directory, PID, OFFSET), self.troubles.append)
        self.port = self.listening.socket.getsockname()[1]

    def post(self, body, kind=PROTOBUF, path=None, chunked=False, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = iter([body[place : place + 7] for place in range(0, len(body), 7)]) if chunked else body
        try:
            connection.request("POST", path or self.listening.path, data, headers, encode_chunked=chunked)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type"), response.read()
        finally:
            connection.close()

    def operations(self):
        return read_run(self.directory).operations


@pytest.fixture
def sink():
    sink = OtlpSink(prefix="/base")
    yield sink
    sink.close()


@pytest.fixture
def received(tmp_path, sink):
    received = _Received(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url})
    yield received
    received.receiver.close()


def _bodies():
    request = _request(2)
    protobuf, text = request.SerializeToString(), json.dumps(to_json(request)).encode()
    for kind, body in ((PROTOBUF, protobuf), (JSON, text)):
        for encoding, packed in (
            (None, body),
            ("gzip", gzip.compress(body)),
            ("deflate", zlib.compress(body)),
        ):
            for chunked in (False, True):
                name = f"{kind.rpartition('/')[2]} {encoding or 'plain'}{' chunked' if chunked else ''}"
                yield pytest.param(kind, encoding, packed, chunked, id=name)


@pytest.mark.parametrize(("kind", "encoding", "body", "chunked"), list(_bodies()))
def test_every_encoding_becomes_operations(tmp_path, kind, encoding, body, chunked):
    received = _Received(tmp_path, {})
    status, said, answer = received.post(
        body, kind, chunked=chunked, **({"Content-Encoding": encoding} if encoding else {})
    )
    received.receiver.close()
    assert (status, said) == (200, kind)
    if kind == PROTOBUF:
        assert not ExportTraceServiceResponse.FromString(answer).HasField("partial_success")
    else:
        assert json.loads(answer) == {}
    first, second = received.operations()
    assert (first.name, first.pid, first.status, first.exported) == ("step 1", PID, "ok", True)
    assert (first.start, first.end) == pytest.approx((11, 11.5), abs=1e-3)
    assert (first.trace_id, first.span_id) == ("0af7651916cd43dd8448eb211c80319c", "0000000000000001")
    assert first.parent_span_id == "b7ad6b7169203331"
    assert first.attributes == {"batch": 1}
    assert second.name == "step 2"


def test_bodies_are_forwarded_unchanged_with_their_headers(received, sink):
    body = gzip.compress(_request().SerializeToString())
    status, kind, _ = received.post(body, Content_Encoding="gzip", Authorization="Bearer x")
    assert (status, kind) == (200, PROTOBUF)
    path, headers, message = sink.requests[0]
    assert path == "/v1/traces"
    assert headers["authorization"] == "Bearer x"
    assert headers["content-encoding"] == "gzip"
    assert message == _request()


def test_the_endpoints_refusal_is_handed_back(received, sink):
    sink.answer = lambda _path: (429, "text/plain", b"slow down")
    status, _, body = received.post(_request().SerializeToString())
    assert (status, body) == (429, b"slow down")


def test_an_endpoint_that_is_down_is_unavailable_to_the_client_too(tmp_path):
    received = _Received(tmp_path, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"})
    status, _, body = received.post(_request().SerializeToString())
    assert status == 503
    assert b"cannot be reached" in body
    assert len(received.operations()) == 1
    received.receiver.close()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ({"body": b"\xff\xffrubbish"}, 400),
        ({"body": b"{", "kind": JSON}, 400),
        ({"body": b"[]", "kind": JSON}, 400),
        ({"body": b'{"resourceSpans": 3}', "kind": JSON}, 400),
        ({"body": b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz"}]}]}]}', "kind": JSON}, 400),
        ({"body": b"x", "kind": "text/plain"}, 415),
        ({"body": b"x", "Content_Encoding": "zstd"}, 415),
        ({"body": b"no gzip", "Content_Encoding": "gzip"}, 400),
        ({"body": gzip.compress(b"x" * 1000)[:-12], "Content_Encoding": "gzip"}, 400),
        ({"body": b"", "Content_Length": str(MAX_BODY + 1)}, 413),
        ({"body": b"", "Content_Length": "much"}, 400),
        ({"body": b"x", "path": "/v1/traces"}, 404),
        ({"body": b"x", "path": "/0123456789abcdef0123456789abcdef/v1/traces"}, 404),
    ],
    ids=["protobuf", "json", "array", "type", "id", "kind", "encoding", "gzip", "cut", "long", "length", "no token", "token"],
)  # fmt: skip
def test_what_is_no_otlp_is_refused(received, sink, arguments, status):
    assert received.post(**arguments)[0] == status
    assert sink.requests == []
    assert received.post(b"")[0] == 200, "an empty body is a success, and the receiver goes on"


def test_a_bomb_is_refused(received):
    assert received.post(gzip.compress(b"\0" * (MAX_BODY + 1000), 9), Content_Encoding="gzip")[0] == 413


def test_spans_that_the_process_recorded_itself_are_not_recorded_twice(received):
    own = received.directory / f"operations-{PID}.jsonl"
    own.write_text(
        '{"schema":1,"pid":4242,"start":0,"program":"x","exact":false,"floor":0}\n'
        '{"open":1,"time":11,"name":"step 1","trace":"0af7651916cd43dd8448eb211c80319c","span":"0000000000000001",'
        '"parent":null,"thread":1,"rss":1,"segment":1,"attributes":{},"exported":true}\n'
    )
    received.post(_request(2).SerializeToString())
    assert sorted(operation.name for operation in received.operations()) == ["step 1", "step 2"]


def test_a_batch_that_is_sent_again_is_recorded_once(received, sink):
    """As SDKs do with what an endpoint does not take yet; another batch may come between."""
    request = _request(2)
    request.resource_spans[0].scope_spans[0].spans[0].ClearField("parent_span_id")
    body = request.SerializeToString()
    sink.answer = lambda _path: (503, "text/plain", b"later")
    assert received.post(body)[0] == 503
    assert received.post(_request(2, first=3).SerializeToString())[0] == 503
    sink.answer = lambda _path: None
    assert received.post(body)[0] == 200
    assert sorted(operation.name for operation in received.operations()) == [
        f"step {number}" for number in range(1, 5)
    ]
    assert len(received.receiver._record.roots) == 1


def test_spans_of_other_processes_keep_their_pid_and_those_of_none_get_the_targets(received):
    received.post(_request(pid=777).SerializeToString())
    received.post(_request(pid=None, first=5).SerializeToString())
    assert {operation.pid for operation in received.operations()} == {777, PID}


def test_a_full_or_vanished_directory_costs_the_client_nothing(received, sink):
    received.receiver._record._directory = received.directory / "gone"
    assert received.post(_request().SerializeToString())[0] == 200
    assert received.post(_request().SerializeToString())[0] == 200
    assert len(received.troubles) == 1
    assert len(sink.requests) == 2


def test_the_target_learns_where_to_send_only_its_spans(sink):
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}
    listening = listen(environment)
    try:
        assert set(listening.variables) == {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        }
        assert listening.variables["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"].endswith(listening.path)
        assert listening.socket.getsockname()[0] == "127.0.0.1"
        assert len(listening.token) == 32
        assert not os.get_inheritable(listening.socket.fileno())
        assert listening.upstream.url == f"{sink.url}/v1/traces"
    finally:
        listening.socket.close()


def test_without_grpc_an_endpoint_that_needs_it_is_refused_before_the_start(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="takes gRPC"):
        listen({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"})


def test_spans_are_forwarded_over_grpc(tmp_path):
    grpc = need("grpc")
    from concurrent.futures import ThreadPoolExecutor

    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

    got = []

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request, context):  # noqa: N802
            got.append((request, dict(context.invocation_metadata())))
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    received = _Received(tmp_path, environment)
    body = json.dumps(to_json(_request())).encode()
    assert received.post(body, JSON, X_Key="value")[0] == 200
    assert got[0][0] == _request()
    assert got[0][1]["x-key"] == "value"
    received.receiver.close()
    server.stop(None).wait(10)


def test_json_and_protobuf_are_the_same_message():
    request = _request(3)
    assert parse_json(json.dumps(to_json(request)), ExportTraceServiceRequest()) == request
    assert to_json(request)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"] == "0000000000000001"
