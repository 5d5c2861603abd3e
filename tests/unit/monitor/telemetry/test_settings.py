from __future__ import annotations

import pytest

from otel_memwatch.config import parse_address, parse_textfile, parse_url
from otel_memwatch.monitor.telemetry.settings import Endpoint, wanted

HTTP = "http/protobuf"


def test_nothing_is_wanted_by_default():
    assert not wanted({}, {})
    assert not wanted(
        {"prometheus": None, "otlp": None}, {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}
    )


def test_metrics_that_are_scraped_need_not_be_pushed_too():
    found = wanted({"otlp": "http://a:4318", "otlp_metrics": False, "prometheus": "127.0.0.1:0"}, {})
    assert (found.metrics, found.prometheus) == (None, "127.0.0.1:0")
    assert found.spans is not None


@pytest.mark.parametrize(
    ("settings", "environ", "metrics", "spans"),
    [
        ({"otlp": "http://c:4318"}, {}, "http://c:4318/v1/metrics", "http://c:4318/v1/traces"),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/metrics", "http://c:4318/v1/traces"),
        ({}, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://p/x"}, "http://p/x", None),
        ({}, {"OTEL_METRICS_EXPORTER": "otlp"}, "http://localhost:4318/v1/metrics", None),
        (
            {}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": "none"}, None, "http://c/v1/traces",
        ),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, None, None),
        (
            {"otlp": "http://mine"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"},
            "http://mine/v1/metrics", "http://mine/v1/traces",
        ),
    ],
)  # fmt: skip
def test_where_signals_go(settings, environ, metrics, spans):
    found = wanted(settings, environ)
    assert found.metrics == (metrics and Endpoint(metrics, HTTP))
    assert found.spans == (spans and Endpoint(spans, HTTP))


def test_what_is_intended_for_the_targets_own_sdk_is_not_taken():
    """The target wants port 9464 and its terminal for itself."""
    found = wanted(
        {}, {"OTEL_METRICS_EXPORTER": "prometheus,console,memwatch", "OTEL_TRACES_EXPORTER": "console"}
    )
    assert not found


def test_plugins_are_named_in_the_standard_variables():
    found = wanted({}, {"OTEL_METRICS_EXPORTER": "otlp, vendor", "OTEL_TRACES_EXPORTER": "vendor"})
    assert found.plugins == (("metrics", "vendor"), ("traces", "vendor"))
    assert found.metrics is not None
    assert found.spans is None


def test_grpc_goes_to_the_server_itself():
    found = wanted({"otlp": "http://c:4317", "otlp_protocol": "grpc"}, {})
    assert found.metrics == Endpoint("http://c:4317", "grpc")
    assert wanted({"otlp": "http://c"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).spans == Endpoint(
        "http://c", "grpc"
    )
    assert (
        wanted({"otlp": "http://c"}, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}).metrics.protocol == HTTP
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("10000", 10), ("1500", 1.5), ("5", 5), ("x", 10), ("-1", 10), ("", 10)]
)
def test_a_timeout_in_milliseconds_or_in_the_python_sdks_seconds(text, seconds):
    found = wanted({"otlp": "http://c"}, {"OTEL_EXPORTER_OTLP_TIMEOUT": text})
    assert found.metrics.timeout == found.spans.timeout == seconds
    own = {"OTEL_EXPORTER_OTLP_TIMEOUT": "7000", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": text}
    found = wanted({"otlp": "http://c"}, own)
    assert found.spans.timeout == 7
    assert found.metrics.timeout == (seconds if text else 7)


def test_the_interval():
    assert wanted({}, {}).interval == 10
    assert wanted({}, {"OTEL_METRIC_EXPORT_INTERVAL": "60000"}).interval == 60
    assert wanted({"metric_interval": 2.0}, {"OTEL_METRIC_EXPORT_INTERVAL": "60000"}).interval == 2


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", "127.0.0.1:9464"),
        ("0", "127.0.0.1:0"),
        ("0.0.0.0:80", "0.0.0.0:80"),
        ("[::1]:9", "[::1]:9"),
        ("h:1", "h:1"),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address
    assert parse_address(address) == address


@pytest.mark.parametrize("text", ["", "x", "65536", "-1", "1.5", "host", ":80", "::1:80", "h:", "h:x", "٣"])
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match=r"."):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("https://c.example/otlp/", "https://c.example/otlp"),
        ("http://p:9090/api/v1/otlp/v1/metrics", "http://p:9090/api/v1/otlp"),
        ("http://c:4318/v1/traces/", "http://c:4318"),
        ("http://[::1]:4318", "http://[::1]:4318"),
    ],
)
def test_urls(text, url):
    assert parse_url(text) == url
    assert parse_url(url) == url


@pytest.mark.parametrize(
    "text",
    ["", "x", "localhost:4318", "ftp://x", "http://", "http://x:port", "http://x:0", "http://x:99999", "http://a b",
     "http://user:word@x", "http://x?key=secret", "http://x#y", "http://[::1"],
)  # fmt: skip
def test_what_is_no_endpoint(text):
    with pytest.raises(ValueError, match=r"."):
        parse_url(text)


def test_a_textfile_has_the_ending_that_node_exporter_reads():
    assert parse_textfile("/var/lib/x.prom") == "/var/lib/x.prom"
    for text in ("x", "x.txt", ".prom/x", "/tmp/.prom"):
        with pytest.raises(ValueError, match=r"\.prom"):
            parse_textfile(text)
