"""Port on which the monitor receives the target's own spans: opened before the target starts, stdlib only.

The variables for traces redirect only spans; metrics and logs keep their destination. Every user of the machine can
connect to a loopback port, so the path contains a random token.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import NamedTuple

_PREFIXES = ("OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_")


class Upstream(NamedTuple):
    """Original destination of the target's spans."""

    url: str
    """Full URL for HTTP; the server for gRPC."""
    grpc: bool
    configured: bool
    """True if a variable or option sets it; otherwise it is the SDKs' default, possibly without a listener."""


class ListeningPort(NamedTuple):
    """Open port, with the variables for the target."""

    socket: socket.socket
    token: str
    upstream: Upstream
    variables: dict[str, str]
    """Variables for the target's environment."""

    @property
    def path(self) -> str:
        """Return the path for posted spans."""
        return f"/{self.token}/v1/traces"


def listen(environ: Mapping[str, str], own_endpoint: str | None = None) -> ListeningPort:
    """Open the port; connections wait in its queue until the receiver starts.

    Args:
        environ: environment of the target.
        own_endpoint: base URL of `--otlp`: destination of the spans if the environment names no endpoint.

    Raises `UsageError` if no port is available or spans could not be forwarded.

    """
    from importlib.util import find_spec

    upstream = _upstream(environ, own_endpoint)
    if upstream.grpc and find_spec("grpc") is None:
        raise UsageError(
            f"The spans could not be forwarded to {mask_url(upstream.url)}, which takes gRPC.",
            "pip install 'otel-memwatch[grpc]', or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf and its port",
        )
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise UsageError(f"No port to receive spans could be opened: {error.strerror}.") from None
    token = os.urandom(16).hex()
    port = listening.getsockname()[1]
    protocol = "http/json" if _protocol(environ) == "http/json" else "http/protobuf"
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{port}/{token}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": protocol,
    }
    return ListeningPort(listening, token, upstream, variables)


def _protocol(environ: Mapping[str, str]) -> str | None:
    """Return the protocol for traces, or the one for all signals; `None`: neither is set."""
    return next(filter(None, (environ.get(f"{prefix}PROTOCOL") for prefix in _PREFIXES)), None)


def _upstream(environ: Mapping[str, str], own_endpoint: str | None) -> Upstream:
    own, base = (environ.get(prefix + "ENDPOINT") for prefix in _PREFIXES)
    url = own or base
    protocol = _protocol(environ)
    grpc = protocol == "grpc" or (protocol is None and (url or "").rstrip("/").endswith(":4317"))
    if url is None and own_endpoint is not None:
        return Upstream(f"{own_endpoint}/v1/traces", grpc=False, configured=True)
    if url is None:
        return Upstream("http://localhost:4318/v1/traces", grpc=False, configured=False)
    if grpc or own:
        return Upstream(url, grpc=grpc, configured=True)
    return Upstream(f"{url.rstrip('/')}/v1/traces", grpc=False, configured=True)
