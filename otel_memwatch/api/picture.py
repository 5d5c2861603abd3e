"""Path of a picture that notebooks show as the picture."""

from __future__ import annotations

import base64
from pathlib import PosixPath
from typing import Any


class Picture(PosixPath):
    """An ordinary path; as the value of a notebook cell it shows the picture."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:  # noqa: ARG002 - IPython's signature
        """Return the path and the picture by media type; for a PDF or a missing file, only the path."""
        bundle: dict[str, Any] = {"text/plain": str(self)}
        try:
            if self.suffix == ".svg":
                bundle["image/svg+xml"] = self.read_text("utf-8")
            elif self.suffix == ".png":
                bundle["image/png"] = base64.b64encode(self.read_bytes()).decode("ascii")
        except OSError:
            pass
        return bundle
