"""The path of a picture that a notebook shows as the picture."""

from __future__ import annotations

import base64
from pathlib import PosixPath
from typing import Any


class Picture(PosixPath):
    """A path as any other; where it is a cell's value, the picture is seen."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:  # noqa: ARG002 - IPython's signature
        """The picture by its media type beside the path; the path alone of a PDF, or of a file that is gone."""
        bundle: dict[str, Any] = {"text/plain": str(self)}
        try:
            if self.suffix == ".svg":
                bundle["image/svg+xml"] = self.read_text("utf-8")
            elif self.suffix == ".png":
                bundle["image/png"] = base64.b64encode(self.read_bytes()).decode("ascii")
        except OSError:
            pass
        return bundle
