"""What works with real peers, and how long the end of a run waits for endpoints of each kind; two tables in Markdown.

    python tests/bench/bench_endpoints.py [--repeat 3] [--only peers|endpoints]

Peers: Prometheus and promtool, OpenTelemetry's SDKs for Python and, where npm can install it, for Node, and endpoints made of the
protocol's own protobuf classes. Machines differ, so nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.support.otlp_sink import OtlpSink
from tests.support.peers import Prometheus, free_port

WRAP = [sys.executable, "-m", "otel_memwatch", "wrap", "--no-report", "--no-plot"]
NODE = Path(__file__).parents[1] / "data" / "node"
SECONDS = 2.0
"""A target lasts so long."""
TARGET = f"""
import time
from otel_memwatch import operation
for number in range(10):
    with operation(f"step {{number}}"):
        pass
time.sleep({SECONDS})
print(time.monotonic(), flush=True)
"""
PARTIAL = {
    "/v1/metrics": ExportMetricsServiceResponse(
        partial_success={"rejected_data_points": 7, "error_message": "too old by an hour"}
    ),
    "/v1/traces": ExportTraceServiceResponse(),
    "/v1/logs": ExportLogsServiceResponse(),
}


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TRACE"))}
    return {**kept, **more}


# -- endpoints


@contextlib.contextmanager
def answering(answer):
    """An endpoint that takes what it is sent, or answers as `answer` says."""
    sink = OtlpSink(answer)
    try:
        yield sink.url
    finally:
        sink.close()


@contextlib.contextmanager
def refusing():
    yield f"http://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def silent():
    """Connections are made, and nothing is ever read or said."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def blackhole():
    """No connection is ever made: the queue of a socket without an accepting program is full, as behind a firewall that drops."""
    with socket.socket() as listening, contextlib.ExitStack() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def closing():
    """Reads the beginning of a request and closes."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    client.recv(100)
                    client.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def untrusted():
    """TLS with a certificate without a trusted signature."""
    with tempfile.TemporaryDirectory() as place:
        key, certificate = Path(place) / "key.pem", Path(place) / "cert.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        sink = OtlpSink()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        sink.server.socket = context.wrap_socket(sink.server.socket, server_side=True)
        try:
            yield sink.url.replace("http:", "https:")
        finally:
            sink.close()


@contextlib.contextmanager
def grpc(refusal=None):
    """A server for all signals, by gRPC."""
    import grpc as library
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

    server = library.server(ThreadPoolExecutor(3))
    for module, kind, response in (
        (metrics_service_pb2_grpc, "Metrics", ExportMetricsServiceResponse),
        (trace_service_pb2_grpc, "Trace", ExportTraceServiceResponse),
        (logs_service_pb2_grpc, "Logs", ExportLogsServiceResponse),
    ):

        def export(_self, _request, context, response=response):
            if refusal:
                context.abort(getattr(library.StatusCode, refusal), "not today")
            return response()

        servicer = type("Servicer", (getattr(module, f"{kind}ServiceServicer"),), {"Export": export})
        getattr(module, f"add_{kind}ServiceServicer_to_server")(servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait(10)


@contextlib.contextmanager
def encrypted_towards(plain):
    """The same endpoint, spoken to as if it had TLS."""
    with plain as url:
        yield url.replace("http:", "https:")


def _slow(_path):
    time.sleep(1)


def _partial(path):
    return 200, "application/x-protobuf", PARTIAL[path].SerializeToString()


def _status(number, words="", **headers):
    def answer(_path):
        return number, "text/plain", words.encode(), headers

    return answer


ENDPOINTS = {
    "none": None,
    "takes everything": lambda: answering(lambda _: None),
    "takes everything, gRPC": grpc,
    "takes each request in 1 s": lambda: answering(_slow),
    "partial success: 7 points rejected": lambda: answering(_partial),
    "401": lambda: answering(_status(401, "who are you?")),
    "404, a page of HTML": lambda: answering(lambda _: (404, "text/html", b"<html>no</html>")),
    "429, Retry-After 1": lambda: answering(_status(429, "slowly", Retry_After="1")),
    "429, Retry-After 30": lambda: answering(_status(429, "slowly", Retry_After="30")),
    "500": lambda: answering(_status(500, "oops")),
    "503, Retry-After 1": lambda: answering(_status(503, "later", Retry_After="1")),
    "UNAVAILABLE, gRPC": lambda: grpc("UNAVAILABLE"),
    "refuses connections": refusing,
    "refuses connections, gRPC": refusing,
    "no connection is ever made": blackhole,
    "never answers": silent,
    "never answers, gRPC": silent,
    "closes in the middle of a request": closing,
    "has no TLS, is spoken to with TLS": lambda: encrypted_towards(answering(lambda _: None)),
    "speaks gRPC, is spoken to with HTTP": grpc,
    "an unsigned certificate": untrusted,
}


def ended(directory, options):
    """Seconds from the target's last line to the end of the command, and what was said of telemetry."""
    job = subprocess.run(
        [*WRAP, "--quiet", *options, "--out", tempfile.mktemp(dir=directory), "--", sys.executable, "-c", TARGET],
        capture_output=True, env=environment(), text=True, check=True, timeout=120,
    )  # fmt: skip
    return time.monotonic() - float(job.stdout), [line for line in job.stderr.splitlines() if line]


def endpoints(directory, repeat):
    print(f"\n| endpoint | end, shortest of {repeat} | longest | message |")
    print("| --- | ---: | ---: | --- |")
    for name, opened in ENDPOINTS.items():
        taken, said = [], []
        with opened() if opened else contextlib.nullcontext() as url:
            options = [] if url is None else ["--otlp", url]
            if "gRPC" in name and "HTTP" not in name:
                options += ["--otlp-protocol", "grpc"]
            for _ in range(repeat):
                seconds, said = ended(directory, options)
                taken.append(seconds)
        words = "; ".join(
            line.removeprefix("otel-memwatch: ").partition("; the record is")[0] for line in said
        )
        if url:
            words = words.replace(url, "URL").replace("|", "\\|")
        print(f"| {name} | {min(taken):.2f} s | {max(taken):.2f} s | {words or '-'} |", flush=True)


# -- peers


def row(what, result):
    print(f"| {what} | {result} |", flush=True)


def scraped(directory):
    """A run that a real Prometheus scrapes; its page for promtool."""
    port = free_port()
    server = Prometheus(directory / "prometheus", [f"127.0.0.1:{port}"])
    try:
        job = subprocess.Popen(
            [*WRAP, "--quiet", "--prometheus", str(port), "--linger", "60", "--metrics", "all", "--operation-metrics", "histograms",
             "--out", str(directory / "scraped"), "--", sys.executable, "-m", "otel_memwatch", "demo", "--seconds", "6", "--scale", "0.3"],
            env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        server.wait(lambda: server.query('up{job="memwatch"} == 1'))
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url) as response:
            page = response.read()
        formats = []
        for accept in (
            "text/plain",
            "application/openmetrics-text;version=1.0.0",
            "text/plain;version=1.0.0;escaping=allow-utf-8",
        ):
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as response:
                formats.append(
                    response.headers["Content-Type"].partition(";")[0] if response.read() else "nothing"
                )
        job.communicate(timeout=120)
        document = json.loads(
            subprocess.run(
                [sys.executable, "-m", "otel_memwatch", "report", str(directory / "scraped"), "--json"],
                capture_output=True,
                check=True,
            ).stdout
        )

        def last(name):
            found = server.wait(lambda: server.query(f"sum(last_over_time({name}[5m]))"))
            return float(found[0]["value"][1])

        pairs = {
            "peak": (last("memwatch_tree_memory_peak_bytes"), document["peaks"]["tree"]["bytes"]),
            "largest process": (
                last("memwatch_tree_process_memory_peak_bytes"),
                document["peaks"]["process"]["bytes"],
            ),
            "exit code": (last("memwatch_run_exit_code"), document["ended"]["exit_code"]),
        }
        cpu = last("memwatch_tree_cpu_time_seconds_total"), document["totals"]["cpu_seconds"]
        row(
            "Prometheus against `report --json`",
            "; ".join(f"{name} {a:.0f} and {b}" for name, (a, b) in pairs.items())
            + f"; CPU {cpu[0]:.3f} and {cpu[1]:.3f} s",
        )
    finally:
        server.close()
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    told = sorted({line.split()[0] for line in done.stderr.decode().splitlines() if line})
    row(
        "`promtool check metrics`, all metrics and histograms",
        f"exit code {done.returncode}, complaints of {len(told)} names: {', '.join(told) or 'none'}",
    )
    row("formats asked for", ", ".join(formats))
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    row("the page, all metrics and histograms", f"{len(page) / 1024:.1f} KB, {series} series")


OWN_SPANS = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
for number in range(50):
    with provider.get_tracer("x").start_as_current_span(f"Span {number}"):
        pass
provider.shutdown()
"""


def sender(directory, what, command, **more):
    """Spans that a program's own SDK sends: recorded, and passed on as they are."""
    sink = OtlpSink()
    try:
        out = tempfile.mktemp(dir=directory)
        done = subprocess.run(
            [*WRAP, "--quiet", "--receive-otlp", "--out", out, "--", *command],
            env=environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url, **more), capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        shown = subprocess.run(
            [sys.executable, "-m", "otel_memwatch", "report", out, "--json"], capture_output=True, check=True
        )
        operations = {one["name"] for one in json.loads(shown.stdout)["operations"]}
        arrived = [span.name for _, span in sink.spans()]
        theirs = [name for name in arrived if name in operations]
        said = f"; said: {done.stderr.strip().partition(chr(10))[0]}" if done.stderr else ""
        row(
            what,
            f"{len(operations)} operations, {len(theirs)} spans passed on, {len(arrived) - len(theirs)} of our own, {len(sink.defects)} defects of the protocol{said}",
        )
    finally:
        sink.close()


def node(directory):
    place = directory / "node"
    place.mkdir()
    for name in ("package.json", "traced.js"):
        shutil.copy(NODE / name, place)
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=place,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        row("Node's SDK", "npm could not install it")
        return
    sender(
        directory,
        "Node's SDK, protobuf, gzip",
        ["node", str(place / "traced.js"), "protobuf"],
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
    )
    sender(directory, "Node's SDK, protobuf", ["node", str(place / "traced.js"), "protobuf"])


def peers(directory):
    print("\n| what | result |\n| --- | --- |")
    scraped(directory)
    sender(directory, "Python's SDK, protobuf", [sys.executable, "-c", OWN_SPANS])
    sender(
        directory,
        "Python's SDK, protobuf, gzip",
        [sys.executable, "-c", OWN_SPANS],
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
    )
    node(directory)
    for protocol, opened in (("http/protobuf", None), ("grpc", grpc)):
        sink = None if opened else OtlpSink()
        with opened() if opened else contextlib.nullcontext(sink.url) as url:
            sent = subprocess.run(
                [sys.executable, "-m", "otel_memwatch", "replay", str(directory / "scraped"), "--otlp", url, "--otlp-protocol", protocol],
                capture_output=True, text=True, check=False, env=environment(),
            )  # fmt: skip
        words = re.sub(r"http://\S+", "URL", sent.stderr.strip().replace("otel-memwatch: ", "")).replace(
            "\n", "; "
        )
        defects = f", {len(sink.defects)} defects of the protocol" if sink else ""
        row(f"`replay`, {protocol}", f"exit code {sent.returncode}: {words}{defects}")
        if sink:
            sink.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=("peers", "endpoints"))
    chosen = parser.parse_args()
    print(
        f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; targets of {SECONDS:.0f} s with 10 operations"
    )
    with tempfile.TemporaryDirectory() as place:
        if chosen.only != "endpoints":
            peers(Path(place))
        if chosen.only != "peers":
            endpoints(Path(place), chosen.repeat)


if __name__ == "__main__":
    main()
