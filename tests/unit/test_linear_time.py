"""The cost of foreign text grows as its length: an argument, a variable, a record, a file of the kernel, an answer."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_memwatch import config, units
from otel_memwatch import text as formatting
from otel_memwatch.compat.ipython import perf
from otel_memwatch.compat.nncf import monitor_log
from otel_memwatch.errors import MemwatchError
from otel_memwatch.in_target.operations.tracing import parse_traceparent
from otel_memwatch.monitor.sampling.sources.gpu_drm import cards
from otel_memwatch.monitor.sampling.sources.gpu_nvidia import visible
from otel_memwatch.monitor.telemetry import http_session
from otel_memwatch.monitor.telemetry import settings as telemetry_settings
from otel_memwatch.monitor.telemetry.otlp_receiver import socket, store
from otel_memwatch.record import jsonl, resource
from otel_memwatch.record.operation_writer import clean_name, quote
from otel_memwatch.record.sample_lines import parse_columns
from otel_memwatch.reports import plot, prometheus_text
from otel_memwatch.reports.pages import markdown
from otel_memwatch.runtime import kernel, masking
from otel_memwatch.runtime.procfs import control_group, drm, mappings, process, statm, system

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (4_000, 16_000, 64_000, 1_024_000)
"""Characters. The small ones make quadratic work fail before it takes hours."""

WORST_GROWTH = 2.5
"""Times as long as linear work would take; quadratic work takes 4 and 16 times as long."""
LEAST_SECONDS = 0.005
"""What is faster than this is not compared with: a pause of the machine would count as growth."""

PIECES = (
    "a", "1", "aB", "a-", "a=", "a: ", "token=", "://a:", " ", "\n", "\x1b", "`", "\\000", "a,", 'id="a', "[", "1:a:/\n", "a 1\n",
)  # fmt: skip

ENDED = ("a", "-", " ", "1,234")
ENDS = ("!", "=x", "@")

GPUS = [visible.Identity(f"GPU-{i}", f"{i:02x}", "a") for i in range(16)]


def _series(text: str) -> object:
    return prometheus_text._labels({text[:1000]: text})


TEXTS: dict[str, Callable[[str], object]] = {
    "arguments": lambda text: masking.mask_arguments([f"--{text}", text]),
    "addresses": masking.mask_url,
    "names of programs": lambda text: masking.public_name([text, text]),
    "command lines": lambda text: formatting.command_line([text], 80),
    "names": lambda text: formatting.shorten(text, 40),
    "words of a shell": formatting.shell_word,
    "cells": markdown.escape,
    "labels": _series,
    "labels at the end": prometheus_text._escape,
    "logs": monitor_log.parse,
    "pictures": lambda text: plot._with_stable_names(text.encode()),
    "counters": perf.parse_csv,
    "counters for people": perf.process_lines,
    "devices of CUDA": lambda text: visible.visible({"CUDA_VISIBLE_DEVICES": text}, GPUS),
    "devices of CUDA by name": lambda text: visible.visible({"CUDA_VISIBLE_DEVICES": f"GPU-{text}"}, GPUS),
    "addresses on PCI": cards._PCI.match,
    "cards": cards._CARD.match,
    "clients of cards": drm.parse_drm_fdinfo,
    "kernels": kernel.parse_release,
    "spans": lambda text: store._SPAN.findall(text.encode()),
    "resources": resource.parse_attributes,
    "repositories": lambda text: resource.ci_attributes({"JENKINS_URL": "a", "BUILD_NUMBER": "1", "GIT_URL": text}),
    "answers": lambda text: http_session._first_line(text.encode()),
    "endpoints": lambda text: socket._upstream({"OTEL_EXPORTER_OTLP_ENDPOINT": text}, None),
    "telemetry's variables": lambda text: telemetry_settings.wanted(
        {}, {"OTEL_METRICS_EXPORTER": text, "OTEL_EXPORTER_OTLP_ENDPOINT": text, "OTEL_METRIC_EXPORT_INTERVAL": text}
    ),
    "intervals": config.parse_interval,
    "seconds": config.parse_seconds,
    "sizes": config.parse_size,
    "moments": units.parse_moment,
    "ports": config.parse_address,
    "URLs": config.parse_url,
    "parents": parse_traceparent,
    "operations": lambda text: quote(clean_name(text)[0]) + quote(text),
    "lines": jsonl.parse,
    "headers of samples": lambda text: parse_columns({"columns": [{"metric": text}]}),
}  # fmt: skip

FILES: dict[str, Callable[[bytes], object]] = {
    "stat": process.parse_stat,
    "io": process.parse_io,
    "statm": statm.parse_resident,
    "private": statm.parse_private,
    "swapped": process.parse_swapped,
    "pinned": process.parse_pinned,
    "vmstat": system.parse_allocated,
    "status": process.parse_status,
    "peak": process.parse_watermark,
    "thread group": process.parse_thread_group,
    "children": process.parse_ignores_sigchld,
    "smaps_rollup": process.parse_rollup,
    "smaps": mappings.parse_mapped_files,
    "cmdline": process.parse_arguments,
    "cgroup": control_group.parse_memberships,
    "mountinfo": control_group.parse_mounts,
    "mountinfo of groups": lambda data: control_group.parse_mounts(b"1 1 0:1 " + data + b" /c rw - cgroup c rw," + data),
    "memory.stat": control_group.parse_keyed,
    "one figure": lambda data: control_group.parse_key(data, b"anon"),
    "limit": control_group.parse_limit,
    "meminfo": system.parse_memory,
    "used": system.parse_used,
    "loadavg": system.parse_load,
    "last pid": system.parse_last_pid,
    "pressure": system.parse_pressure,
}  # fmt: skip


def cost(call: Callable[[], object]) -> float:
    """Seconds of processor time; refusing counts as an answer."""
    # The collector looks through all that the test process holds, which is no cost of the function's.
    gc.disable()
    begun = time.process_time()
    with contextlib.suppress(ValueError, IndexError, KeyError, AttributeError, MemwatchError):
        call()
    taken = time.process_time() - begun
    gc.enable()
    return taken


def assert_linear(work: Callable[[str], object]) -> None:
    for piece, end in (*((piece, "") for piece in PIECES), *product(ENDED, ENDS)):
        before = allowed = math.inf
        for size in SIZES:
            text = piece * (size // len(piece)) + end
            taken = cost(lambda text=text: work(text))  # type: ignore[misc]
            if taken > allowed:  # once more: the first call may have loaded something
                taken = min(taken, cost(lambda text=text: work(text)))  # type: ignore[misc]
            assert taken <= allowed, (piece, end, size, taken, before)
            before = taken
            following = next((larger for larger in SIZES if larger > size), size)
            allowed = WORST_GROWTH * following / size * max(taken, LEAST_SECONDS)


@pytest.mark.parametrize("what", TEXTS)
def test_texts(what: str) -> None:
    assert_linear(TEXTS[what])


@pytest.mark.parametrize("what", FILES)
def test_files(what: str) -> None:
    assert_linear(lambda text: FILES[what](text.encode()))


def test_batches_of_spans(tmp_path: Path) -> None:
    """A program may send thousands of spans at once, and waits for the answer."""

    def record(count: int) -> float:
        request = ExportTraceServiceRequest()
        spans = request.resource_spans.add().scope_spans.add().spans
        for number in range(count):
            spans.add(
                trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"), name="work" * 20
            )
        received = store.ReceivedSpans(tmp_path / str(count), 42, 0.0)
        (tmp_path / str(count)).mkdir(exist_ok=True)
        return cost(lambda: received.record(request.resource_spans))

    record(1)  # loads what is needed
    few = record(1_000)
    allowed = WORST_GROWTH * 16 * max(few, LEAST_SECONDS)
    assert any(record(16_000) <= allowed for _ in range(2))
