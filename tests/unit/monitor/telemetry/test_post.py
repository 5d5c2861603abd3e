"""What went wrong between us and an endpoint is told of the one that it went wrong with."""

from __future__ import annotations

import socket
import threading

import pytest

from otel_memwatch.monitor.telemetry.post import Post


@pytest.fixture
def closed_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def problem(monkeypatch: pytest.MonkeyPatch, url: str, proxy: str) -> str:
    """Why nothing was delivered by way of a proxy."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    post = Post("metrics", url, 0.2, {})
    assert post.deliver(b"") is None
    assert post.problem is not None
    return post.problem


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, closed_port: int, scheme: str
) -> None:
    told = problem(
        monkeypatch,
        f"{scheme}://collector.example:4318/v1/metrics",
        f"http://me:secret@127.0.0.1:{closed_port}",
    )
    assert told.startswith("was not reached: the proxy http://")
    assert told.endswith(f"127.0.0.1:{closed_port} refuses connections")
    assert "secret" not in told


def test_a_proxy_that_lets_nobody_through_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(9):
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        port = server.getsockname()[1]
        told = problem(monkeypatch, "https://collector.example:4318/v1/metrics", f"127.0.0.1:{port}")
    assert told == f"was not reached: the proxy http://127.0.0.1:{port} does not connect to it: 403 Forbidden"
