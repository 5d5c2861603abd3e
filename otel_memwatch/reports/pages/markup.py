"""Text as HTML shows it."""

from __future__ import annotations

from otel_memwatch.text import clean

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escaped(text: str) -> str:
    """Text for an element or an attribute in quotes: nothing in it is markup, and control characters can be seen."""
    return clean(text).translate(_ESCAPES)


def tag(name: str, content: str, **attributes: object) -> str:
    """An element around content that is HTML already; an attribute `class_` is `class`, and `data_x` is `data-x`."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{words}>{content}</{name}>"
