"""Escaped text and elements of HTML."""

from __future__ import annotations

from otel_memwatch.text import clean

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escaped(text: str) -> str:
    """Escape text for an element or a quoted attribute; control characters become visible."""
    return clean(text).translate(_ESCAPES)


def tag(name: str, content: str, **attributes: object) -> str:
    """Return an element around content that is HTML already. `class_` becomes `class`, and `data_x` becomes `data-x`."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{words}>{content}</{name}>"
