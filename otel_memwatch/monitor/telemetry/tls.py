"""Variables of OTLP exporters and the certificates that they name. Standard library only."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.user_files import need_regular


def variable(signal: str, what: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Return name and value of the OTLP exporters' variable that ends with `what`; the signal's own has priority."""
    names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}")
    return next(((name, environ[name]) for name in names if environ.get(name)), (names[1], None))


def tls_context(signal: str, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return the machine's trusted authorities plus the authorities and identity that the environment names.

    Raises `Unavailable` for a file that cannot be used.
    """
    context = ssl.create_default_context()
    name, path = variable(signal, "CERTIFICATE", environ)
    if path is not None:
        _load(name, path, context.load_verify_locations)
    name, path = variable(signal, "CLIENT_CERTIFICATE", environ)
    if path is not None:
        key_name, key = variable(signal, "CLIENT_KEY", environ)
        if key is not None:
            _load(key_name, key, need_regular)
        _load(name, path, lambda certificate: context.load_cert_chain(certificate, key))
    return context


def _load(name: str, path: str, load: Callable[[str], object]) -> None:
    try:
        need_regular(path)
        load(path)
    except ssl.SSLError:
        raise Unavailable(f"{name}: {path} cannot be used: it is not usable PEM.") from None
    except OSError as error:
        raise Unavailable(f"{name}: {path} cannot be used: {error.strerror}.") from None
