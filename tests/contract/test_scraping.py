"""The scraped endpoint and the textfile: TLS, many clients, bad input, a day of scrapes in short."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from otel_memwatch.monitor.telemetry import Telemetry, TelemetryInputs
from otel_memwatch.monitor.telemetry.scrape import PrometheusEndpoint
from tests.support.peers import Prometheus
from tests.support.telemetry_run import all_columns, finished, health, peaks, run_info, snapshot


def _start(settings, columns=None):
    columns = all_columns() if columns is None else columns
    latest = snapshot(columns)
    info, said = run_info(), []
    parts = TelemetryInputs(
        run=info, columns=columns, latest=lambda: latest, health=health, peaks=peaks, say=said.append
    )
    telemetry = Telemetry(settings, parts)
    assert telemetry.wait_until_open(60)
    return telemetry, said, info


def _get(url, context=None):
    with urllib.request.urlopen(url, timeout=20, context=context) as response:
        return response.read().decode()


@pytest.fixture
def certificates(tmp_path):
    """An authority, a server's certificate and a client's, made by openssl."""

    def openssl(*arguments):
        subprocess.run(
            ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60, cwd=tmp_path
        )

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", "/CN=authority",
            "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
    (tmp_path / "san").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
        )
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", 2, "-extfile", "san",
                "-out", f"{name}.pem")  # fmt: skip
    return tmp_path


def test_a_port_in_use_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        telemetry, said, info = _start({"prometheus": address})
        assert said == [f"otel-memwatch: Prometheus cannot be served at {address}: Address already in use."]
        assert telemetry.endpoint is None
        assert len(telemetry.finish(finished(info))) == 1


def test_an_address_that_is_not_ours_and_a_host_that_is_none():
    for address in ("192.0.2.1:9464", "no-such-host.invalid:9464"):
        _, said, _ = _start({"prometheus": address})
        assert len(said) == 1
        assert said[0].startswith(f"otel-memwatch: Prometheus cannot be served at {address}: ")


def test_only_loopback_is_served_by_default():
    telemetry, _, _ = _start({"prometheus": "127.0.0.1:0"})
    port = int(telemetry.endpoint.split(":")[2].partition("/")[0])
    with open("/proc/net/tcp") as file:
        listening = [line.split() for line in file.readlines()[1:]]
    ours = {line[1] for line in listening if line[1].endswith(f":{port:04X}") and line[3] == "0A"}
    assert ours == {f"0100007F:{port:04X}"}
    telemetry.close()


def test_over_ipv6():
    telemetry, said, _ = _start({"prometheus": "[::1]:0"})
    if telemetry.endpoint is None:
        assert "annot assign requested address" in said[0] or "not supported" in said[0]
        return
    assert "memwatch_run_active 1.0" in _get(telemetry.endpoint)
    telemetry.close()


def test_tls_with_client_certificates_and_a_real_prometheus(certificates):
    telemetry, said, _ = _start(
        {
            "prometheus": "127.0.0.1:0",
            "prometheus_cert": str(certificates / "server.pem"),
            "prometheus_key": str(certificates / "server.key"),
            "prometheus_client_ca": str(certificates / "ca.pem"),
        }
    )
    assert telemetry.endpoint.startswith("https://"), said
    stranger = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with pytest.raises((ssl.SSLError, OSError)):
        _get(telemetry.endpoint, stranger)
    known = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    known.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    assert "memwatch_run_active 1.0" in _get(telemetry.endpoint, known)
    tls = {
        "ca_file": str(certificates / "ca.pem"),
        "cert_file": str(certificates / "client.pem"),
        "key_file": str(certificates / "client.key"),
    }
    server = Prometheus(
        certificates / "prometheus", [telemetry.endpoint.split("/")[2]], scheme="https", tls=tls
    )
    try:
        server.wait(lambda: server.query("memwatch_run_active"))
    finally:
        server.close()
        telemetry.close()


def test_a_client_that_is_silent_does_not_hold_up_others(certificates):
    settings = {
        "prometheus": "127.0.0.1:0",
        "prometheus_cert": str(certificates / "server.pem"),
        "prometheus_key": str(certificates / "server.key"),
    }
    telemetry, _, _ = _start(settings)
    host, _, port = telemetry.endpoint.split("/")[2].partition(":")
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection((host, int(port)), 10))
        assert "memwatch_run_active" in _get(telemetry.endpoint, context)
    telemetry.close()


def test_certificates_that_cannot_be_used(certificates):
    rubbish = certificates / "rubbish.pem"
    rubbish.write_text("rubbish")
    for settings, expected in (
        ({"prometheus_cert": str(rubbish)}, "is not usable PEM"),
        ({"prometheus_cert": str(certificates / "none.pem")}, "No such file or directory"),
        (
            {
                "prometheus_cert": str(certificates / "server.pem"),
                "prometheus_key": str(certificates / "ca.key"),
            },
            "not usable",
        ),
        ({"prometheus_key": str(certificates / "ca.key")}, "needs a certificate"),
    ):
        telemetry, said, _ = _start({"prometheus": "127.0.0.1:0", **settings})
        assert telemetry.endpoint is None
        assert len(said) == 1
        assert expected in said[0]


def test_other_paths_and_methods():
    telemetry, _, _ = _start({"prometheus": "127.0.0.1:0"})
    host = telemetry.endpoint.split("/")[2]
    for method, path, status in (
        ("GET", "/", 200),
        ("GET", "/x", 404),
        ("POST", "/metrics", 501),
        ("GET", "/metrics?x", 200),
        ("HEAD", "/metrics", 200),
        ("HEAD", "/x", 404),
    ):
        connection = http.client.HTTPConnection(host, timeout=20)
        connection.request(method, path)
        answer = connection.getresponse()
        assert answer.status == status
        assert int(answer.headers["Content-Length"]) > 0
        assert (answer.read() == b"") == (method == "HEAD")
        connection.close()
    telemetry.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics\r\n", b"505"),
        (b"GET /metrics HTTP/9.9\r\n", b"505"),
        (b"GET /metrics HTTP/1.0\r\nContent-Length: -5\r\n", b"400"),
        (b"GET /metrics HTTP/1.0\r\nHost: evil.example.com:9090\r\n", b"403"),
        (b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:9090\r\n", b"200"),
        (b"GET /metrics HTTP/1.0\r\nHost: [::1]:9090\r\n", b"200"),
        (b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n", b"200"),
        (b"GET /metrics HTTP/1.0\r\nHost: memwatch:9090\r\n", b"200"),
        (b"GET /metrics HTTP/1.0\r\n", b"200"),
    ],
)
def test_what_is_asked_in_another_way_or_by_a_name_of_others(request_line, status):
    """A page in a browser can make a name of its choice lead to this machine, but not an address."""
    telemetry, _, _ = _start({"prometheus": "127.0.0.1:0"})
    host, _, port = telemetry.endpoint.split("/")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request_line + b"\r\n")
        answer = b""
        while data := connection.recv(65536):
            answer += data
    assert answer.startswith(b"HTTP/1.1 " + status + b" "), answer[:200]
    telemetry.close()


def test_many_clients_at_once_each_get_everything_once():
    telemetry, _, _ = _start({"prometheus": "127.0.0.1:0"})
    pages, lock = [], threading.Lock()

    def scrape():
        for _ in range(5):
            text = _get(telemetry.endpoint)
            with lock:
                pages.append(text)

    threads = [threading.Thread(target=scrape) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(pages) == 40
    names = {tuple(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)) for page in pages}
    assert len(names) == 1
    for page in pages:
        series = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
        assert len(series) == len(set(series))
    telemetry.close()


def test_thousands_of_scrapes_do_not_grow_memory():
    """A day of scraping every 15 s is 5 760 scrapes."""
    telemetry, _, _ = _start({"prometheus": "127.0.0.1:0"}, all_columns()[:5])
    connection = http.client.HTTPConnection(telemetry.endpoint.split("/")[2], timeout=20)

    def scrape(count):
        for _ in range(count):
            connection.request("GET", "/metrics")
            connection.getresponse().read()

    scrape(300)
    before = _resident()
    scrape(1500)
    assert _resident() - before < 1 << 20
    connection.close()
    telemetry.close()


def _resident():
    import gc

    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_it_lingers_until_the_end_has_been_seen():
    telemetry, _, info = _start({"prometheus": "127.0.0.1:0", "linger": 60.0})
    assert "memwatch_run_active 1.0" in _get(telemetry.endpoint)
    telemetry.finish(finished(info, exit_code=3))
    seen = []
    threading.Timer(0.5, lambda: seen.append(_get(telemetry.endpoint))).start()
    began = time.monotonic()
    assert telemetry.linger() is True
    assert time.monotonic() - began < 30
    while not seen:
        time.sleep(0.05)
    assert "memwatch_run_exit_code 3.0" in seen[0]
    telemetry.close()


def test_a_scrape_that_began_before_the_end_has_not_seen_it(monkeypatch):
    """It holds the values of before, however late its client has got them."""
    collected, go_on = threading.Event(), threading.Event()
    text = PrometheusEndpoint.text

    def slow(endpoint, accept):
        page = text(endpoint, accept)
        collected.set()
        assert go_on.wait(30)
        return page

    monkeypatch.setattr(PrometheusEndpoint, "text", slow)
    telemetry, _, info = _start({"prometheus": "127.0.0.1:0", "linger": 0.5})
    pages = []
    client = threading.Thread(target=lambda: pages.append(_get(telemetry.endpoint)))
    client.start()
    assert collected.wait(30)
    telemetry.finish(finished(info))
    go_on.set()
    client.join(30)
    assert "memwatch_run_active 1.0" in pages[0]
    assert telemetry.linger() is False
    telemetry.close()


def test_lingering_ends_with_its_time_or_on_request():
    telemetry, _, info = _start({"prometheus": "127.0.0.1:0", "linger": 0.5})
    telemetry.finish(finished(info))
    assert telemetry.linger() is False
    telemetry.close()
    telemetry, _, info = _start({"prometheus": "127.0.0.1:0", "linger": 600.0})
    telemetry.finish(finished(info))
    assert telemetry.linger(lambda: True) is False
    telemetry.close()


def test_the_textfile_is_replaced_whole_and_distinguishes_jobs(tmp_path):
    path = tmp_path / "job.prom"
    telemetry, said, info = _start({"textfile": str(path), "metric_interval": 0.05})
    torn = 0
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            text = path.read_text()
            torn += not text.endswith("\n") or "memwatch_run_active" not in text
    assert telemetry.finish(finished(info)) == []
    assert torn == 0
    text = path.read_text()
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert all('service_name="train"' in line and 'service_instance_id="a-run-1"' in line for line in series)
    assert any(line.startswith("memwatch_run_active{") and line.endswith(" 0.0") for line in series)
    told = {line.partition("{")[0] for line in series}
    assert {
        "memwatch_run_exit_code",
        "memwatch_run_end_time_seconds",
        "memwatch_tree_memory_peak_bytes",
    } <= told
    # What would look like a run that is alive, or that fills its limit, to a reader of the file next week.
    assert not any("usage" in name or "working_set" in name for name in told), told
    assert oct(path.stat().st_mode & 0o777) == oct(0o644 & ~_umask())
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.prom"]
    assert said == []


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_textfile_that_cannot_be_written(tmp_path):
    telemetry, said, info = _start({"textfile": str(tmp_path / "none" / "x.prom")})
    problems = telemetry.finish(finished(info))
    assert problems == [f"{tmp_path}/none/x.prom cannot be written: No such file or directory"]
    assert len(said) == 1
