"""TensorBoard: another event file with the figures as scalars and the summary as text, and the page beside it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from otel_memwatch.wings.trackers.figures import TrackedFigures

_PAGE = "memwatch-report.html"


def send(figures: TrackedFigures, page: Path, into: str) -> str:
    """Write the figures to this directory."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text import metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    os.makedirs(into, exist_ok=True)
    writer = EventFileWriter(into, filename_suffix=".memwatch")
    values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.scalars.items()]
    # Markdown keeps lines that begin with four blanks unchanged.
    text = "\n".join(f"    {line}" for line in figures.summary.splitlines())
    values.append(
        Summary.Value(
            tag="memwatch/summary",
            metadata=metadata.create_summary_metadata("memwatch/summary", ""),
            tensor=make_tensor_proto([text.encode()]),
        )
    )
    writer.add_event(Event(wall_time=figures.ended, step=0, summary=Summary(value=values)))
    writer.close()
    shutil.copyfile(page, os.path.join(into, _PAGE))
    return f"{into}"
