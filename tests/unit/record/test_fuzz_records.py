"""Run directories and OTLP damaged in every way: a sentence or a report, no traceback, no hang, no heap."""

from __future__ import annotations

import contextlib
import functools
import gzip
import http.client
import io
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_memwatch import reports
from otel_memwatch.cli import COMMANDS, cli
from otel_memwatch.errors import MemwatchError
from otel_memwatch.monitor.telemetry.otlp_receiver.server import MAX_BODY, Receiver
from otel_memwatch.monitor.telemetry.otlp_receiver.socket import listen
from otel_memwatch.monitor.telemetry.otlp_receiver.store import ReceivedSpans
from otel_memwatch.record.follower import OperationFollower
from otel_memwatch.record.otlp_json import parse_json
from otel_memwatch.run import load
from tests.support.mutations import JSON_VALUES, changed, mutated, profile
from tests.support.run_directory import MIB, PID, STARTED, description
from tests.support.sound_run import OPENING, sound

QUICK = ("text", "summary", "json", "markdown", "csv", "otlp", "otlp-traces", "openmetrics", "perfetto")
DRAWN = ("plot", "phases", "parquet")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """hypothesis runs many examples in one test: each needs a separate directory."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def read_everything(path: Path, names: tuple[str, ...] = QUICK) -> None:
    """Makes all reports; what cannot be made is reported in one sentence."""
    for name in names:
        out = io.BytesIO()
        try:
            reports.render(name, load(path), out, encoding="utf-8")
        except MemwatchError as error:
            assert "\n" not in str(error)  # noqa: PT017 - one sentence, whatever it says
            continue
        if name in ("text", "summary"):
            text = out.getvalue().decode("utf-8", "surrogateescape")
            assert not any(ord(character) < 32 and character != "\n" for character in text), text
        if name == "json":
            json.loads(out.getvalue(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_the_sound_run_is_read_without_complaint() -> None:
    """Else the tests below would test refusals only."""
    with folder() as place:
        run = sound(place / "run")
        for name in (*QUICK, *DRAWN):
            reports.render(name, load(run.path), io.BytesIO())
        assert load(run.path).damage == []
        assert [figures.operation.name for figures in load(run.path).operations] == ["Load"]


@profile(100)
@given(changed(description()))
def test_a_description_that_lies(info: Any) -> None:
    with folder() as place:
        run = sound(place / "run")
        text = json.dumps(info)
        (run.path / "run.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        read_everything(run.path)


FINISHED = description(
    peaks={
        "main": {"bytes": 1, "certainty": "exact", "low": 0, "high": 3, "at": 0.1, "pid": PID, "operation": "Load"},
        "process": {"bytes": 1, "certainty": "exact"},
        "tree": {"bytes": 1, "certainty": "interval", "low": 1, "high": None},
        "cgroup": None,
        "gpu": {"GPU-1": {"bytes": 3, "certainty": "sampled"}},
    },
    totals={"cpu_seconds": 1, "processes": 2},
    quality={"ticks": 3, "interval": 0.1, "longest_gap": 0.1, "missed_ticks": 0, "achieved_hz": 10},
    gpus=[
        {"id": "GPU-1", "name": "x", "vendor": "NVIDIA", "held": {"1": 2}, "accounted": {"1": 3}, "absent": ["a"],
         "xid": [{"time": 1000.5, "uuid": "GPU-1", "code": 3}]}
    ],
    marks=[{"time": 1001.0, "text": "x"}],
    trace={"trace_id": "1" * 32, "span_id": "2" * 16, "parent_span_id": None},
    resource={"service.name": "x"},
    ci={"cicd.pipeline.name": "x"},
)  # fmt: skip


@profile(100)
@given(changed(FINISHED, 1))
def test_a_finished_description_that_lies(info: Any) -> None:
    with folder() as place:
        run = sound(place / "run")
        (run.path / "run.json").write_bytes(json.dumps(info).encode("utf-8", "surrogatepass"))
        read_everything(run.path)


@functools.cache
def sound_file(name: str) -> bytes:
    """A file of a run that is not over."""
    with folder() as place:
        return (sound(place / "run", state="running").path / name).read_bytes()


FILES = ["samples.jsonl", "processes.jsonl", f"operations-{PID}.jsonl", "run.json"]


@profile(160)
@given(st.sampled_from(FILES).flatmap(lambda name: st.tuples(st.just(name), mutated(sound_file(name), 8))))
def test_files_whose_bytes_are_damaged(file: tuple[str, bytes]) -> None:
    with folder() as place:
        run = sound(place / "run", state="running")
        (run.path / file[0]).write_bytes(file[1])
        read_everything(run.path)


@profile(40)
@given(st.lists(JSON_VALUES, max_size=5), st.lists(changed([STARTED, 1, 2, 3]), max_size=5))
def test_lines_that_are_json_but_none_of_ours(lines: list[Any], ticks: list[Any]) -> None:
    with folder() as place:
        run = sound(place / "run", state="running")
        for name in ("samples.jsonl", "processes.jsonl", "operations-1.jsonl"):
            for line in (*lines, *ticks):
                run.append(name, json.dumps(line).encode("utf-8", "surrogatepass") + b"\n")
        read_everything(run.path)


@profile(4)
@given(st.sampled_from(["samples.jsonl", "processes.jsonl", f"operations-{PID}.jsonl"]), st.data())
def test_pictures_of_damaged_runs(name: str, data: st.DataObject) -> None:
    with folder() as place:
        run = sound(place / "run", state="running")
        (run.path / name).write_bytes(data.draw(mutated((run.path / name).read_bytes(), 8)))
        read_everything(run.path, DRAWN)


@profile(60)
@given(
    st.lists(st.binary(max_size=60), max_size=6), st.lists(changed({**OPENING, "time": 1001.0}), max_size=3)
)
def test_operations_while_they_are_written(pieces: list[bytes], lines: list[Any]) -> None:
    with folder() as place:
        follower = OperationFollower(place)
        path = place / "operations-7.jsonl"
        for piece in (
            *pieces,
            *(json.dumps(line).encode("utf-8", "surrogatepass") + b"\n" for line in lines),
        ):
            with path.open("ab") as file:
                file.write(piece)
            follower.poll()
            follower.open_operations()
            follower.lines()
        follower.close()


# -- OTLP

SPANS = {"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "x"}}]},
         "scopeSpans": [{"spans": [{"traceId": "1" * 32, "spanId": "2" * 16, "name": "x", "startTimeUnixNano": "1",
                                    "endTimeUnixNano": "2", "status": {"code": 2}, "attributes": [
                                        {"key": "a", "value": {"arrayValue": {"values": [{"intValue": "3"}]}}}]}]}]}]}  # fmt: skip
METRICS = {"resourceMetrics": [{"resource": {}, "scopeMetrics": [{"metrics": [
    {"name": "process.memory.usage", "unit": "By", "sum": {"dataPoints": [
        {"asInt": "5", "timeUnixNano": "1767225600000000000", "attributes": []},
        {"asDouble": 6.5, "timeUnixNano": "1767225601000000000"}]}}]}]}]}  # fmt: skip


@profile(60)
@given(
    st.lists(st.one_of(changed(METRICS, 6), changed(SPANS, 6), JSON_VALUES), min_size=1, max_size=3),
    st.booleans(),
)
def test_files_of_otlp(lines: list[Any], described: bool) -> None:
    with folder() as place:
        run = sound(place / "run").path if described else place
        data = b"".join(json.dumps(line).encode("utf-8", "surrogatepass") + b"\n" for line in lines)
        for name in ("metrics.otlp.jsonl", "traces.otlp.jsonl"):
            (run / name).write_bytes(data)
        read_everything(run, ("text", "json", "csv", "otlp"))


@profile(150)
@given(st.one_of(changed(SPANS, 6), JSON_VALUES))
def test_bodies_of_otlp_in_json(value: Any) -> None:
    with folder() as place:
        message = ExportTraceServiceRequest()
        try:
            parse_json(json.dumps(value), message)
        except ValueError:
            return
        ReceivedSpans(place, 42, 0.0).record(message.resource_spans)
        for line in place.glob("*") and [
            line for path in place.glob("*") for line in path.read_text().splitlines()
        ]:
            json.loads(line)


@contextlib.contextmanager
def serving() -> Iterator[tuple[int, str]]:
    """A receiver: its port and path."""
    listening = listen({})
    with folder() as place:
        served = Receiver(listening, ReceivedSpans(place, 42, 0.0), lambda _: None)
        # No program listens at the default endpoint; asking it at every request would only take time.
        served.forwarder.send = lambda *_: None  # type: ignore[method-assign]
        yield listening.socket.getsockname()[1], listening.path
        served.close()


@pytest.fixture(scope="module")
def receiver() -> Iterator[tuple[int, str]]:
    with serving() as place:
        yield place


def _post(port: int, path: str, body: bytes, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(
            "POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        return connection.getresponse().status
    finally:
        connection.close()


MESSAGE: bytes = parse_json(json.dumps(SPANS), ExportTraceServiceRequest()).SerializeToString()


def test_bodies_that_are_posted(receiver: tuple[int, str]) -> None:
    assert _post(*receiver, MESSAGE, Content_Type="application/x-protobuf") == 200
    bodies_that_are_posted(*receiver)()


def bodies_that_are_posted(port: int, path: str) -> Callable[[], None]:
    """The test against this receiver."""

    @profile(60)
    @given(
        st.one_of(
            mutated(MESSAGE),
            st.binary(max_size=100),
            st.just(gzip.compress(MESSAGE)),
            mutated(gzip.compress(MESSAGE)),
        ),
        st.sampled_from(["application/x-protobuf", "application/json", "text/plain", ""]),
        st.sampled_from(["", "gzip", "deflate", "br", "identity"]),
    )
    def check(body: bytes, kind: str, encoding: str) -> None:
        assert _post(port, path, body, Content_Type=kind, Content_Encoding=encoding) in (200, 400, 413, 415)

    return cast("Callable[[], None]", check)


def test_requests_that_are_none(receiver: tuple[int, str]) -> None:
    """Raw bytes on the port: an answer or the end of the connection, and the next one is served."""
    requests_that_are_none(*receiver)()
    assert _post(*receiver, MESSAGE, Content_Type="application/x-protobuf") == 200


def requests_that_are_none(port: int, path: str) -> Callable[[], None]:
    """The test against this receiver."""
    head = (
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n"
    )
    request = head % (path.encode(), len(MESSAGE))
    chunked = b"POST %s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n" % path.encode()

    @profile(150)
    @given(st.one_of(mutated(request), mutated(chunked), st.binary(max_size=60)))
    def check(data: bytes) -> None:
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(data)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    return cast("Callable[[], None]", check)


@pytest.mark.parametrize("change", ["", "x", "short", "/", "ü"])
def test_without_the_token_nothing_is_taken(receiver: tuple[int, str], change: str) -> None:
    port, path = receiver
    wrong = {"": "/v1/traces", "short": path[:-1], "/": path + "/", "ü": path + "%C3%BC"}.get(
        change, path + change
    )
    assert _post(port, wrong, MESSAGE, Content_Type="application/x-protobuf") == 404


# -- bounded memory


def test_bodies_made_to_fill_the_memory(receiver: tuple[int, str]) -> None:
    """Bombs are measured while they are unpacked."""
    port, path = receiver
    bomb = gzip.compress(bytes(MAX_BODY + 1))
    assert len(bomb) < MIB
    assert _post(port, path, bomb, Content_Type="application/x-protobuf", Content_Encoding="gzip") == 413
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n" % path.encode())
        assert b" 413 " in connection.recv(100)
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(
            b"POST %s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n" % path.encode()
        )
        assert b" 413 " in connection.recv(100)


# -- the command line


@profile(120)
@given(
    st.sampled_from(sorted(set(COMMANDS) - {"wrap", "attach", "demo", "doctor", "mark", "replay"})),
    st.lists(
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(["--json", "--format", "text", "--to", "csv", "-o", "-", "--force", "latest", "/dev/null",
                             "/dev", ".", "--help", "--", "\0", "a" * 5000, "\ud800", "/proc/self", "--output-dir"]),
        ),
        max_size=4,
    ),
)  # fmt: skip
def test_the_command_line(command: str, arguments: list[str]) -> None:
    """One sentence, or what was asked for."""
    with folder() as place:
        before = Path.cwd()
        os.chdir(place)
        try:
            with (
                contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                cli.main([command, *arguments], prog_name="otel-memwatch", standalone_mode=False)
        except (click.ClickException, MemwatchError, click.exceptions.Exit, click.Abort):
            pass
        finally:
            os.chdir(before)


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        ("tradeoff", "\ud800"),
        ("tradeoff", "\0"),
        ("runs", "a" * 5000),
        ("runs", "\0"),
        ("report", "a" * 5000),
    ],
)
def test_paths_that_cannot_be(command: str, argument: str) -> None:
    with pytest.raises(MemwatchError):
        cli.main([command, argument], prog_name="otel-memwatch", standalone_mode=False)


def test_text_that_no_encoding_has() -> None:
    """Half a surrogate pair, in a run's name and in OTLP."""
    with folder() as place:
        run = sound(place / "run", state="running")
        data = (run.path / "run.json").read_bytes()
        (run.path / "run.json").write_bytes(data.replace(b'"id": "', b'"id": "\x80'))
        read_everything(run.path, (*QUICK, "phases"))
    with pytest.raises(ValueError, match=r"."):
        parse_json('{"resourceSpans": ["\\ud800"]}', ExportTraceServiceRequest())
