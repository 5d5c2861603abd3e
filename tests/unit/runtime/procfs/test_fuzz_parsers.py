"""Parsers of what the kernel, perf, people and other programs write: `ValueError` for what is none, nothing else."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch import config
from otel_memwatch import text as formatting
from otel_memwatch.compat.ipython import perf
from otel_memwatch.compat.nncf import tradeoff
from otel_memwatch.errors import MemwatchError
from otel_memwatch.in_target.operations.tracing import parse_traceparent
from otel_memwatch.monitor.telemetry import exporters
from otel_memwatch.monitor.telemetry import settings as telemetry_settings
from otel_memwatch.monitor.telemetry.otlp_receiver import socket
from otel_memwatch.record import resource
from otel_memwatch.record.operation_line import line_of
from otel_memwatch.record.operation_lines import OperationLines
from otel_memwatch.record.operation_writer import attributes_text, clean_name, quote
from otel_memwatch.runtime import kernel, masking
from otel_memwatch.runtime.procfs import control_group, drm, mappings, process, statm, system
from tests.support.mutations import JSON_VALUES, changed, mutated, profile

DATA = Path(__file__).parents[3] / "data"
PROC = DATA / "proc"

PARSERS: list[tuple[Callable[[bytes], object], str]] = [
    (process.parse_stat, "stat"),
    (process.parse_stat, "stat-zombie"),
    (process.parse_io, "io"),
    (statm.parse_resident, "statm"),
    (statm.parse_private, "statm"),
    (statm.parse_virtual, "statm"),
    (process.parse_swapped, "status"),
    (process.parse_page_tables, "status"),
    (process.parse_threads, "status"),
    (process.parse_pinned, "status"),
    (system.parse_allocated, "vmstat"),
    (process.parse_status, "status"),
    (process.parse_status, "status-zombie"),
    (process.parse_watermark, "status"),
    (process.parse_thread_group, "status"),
    (process.parse_ignores_sigchld, "status"),
    (process.parse_first_thread, "status"),
    (process.parse_rollup, "smaps_rollup"),
    (mappings.parse_mapped_files, "smaps"),
    (process.parse_arguments, "stat"),
    (control_group.parse_memberships, "cgroup-v1"),
    (control_group.parse_mounts, "mountinfo-v1"),
    (control_group.parse_keyed, "memory.stat-v1"),
    (control_group.parse_limit, "loadavg"),
    (system.parse_memory, "meminfo"),
    (system.parse_load, "loadavg"),
    (system.parse_last_pid, "loadavg"),
    (system.parse_pressure, "pressure"),
]


def damaged(name: str) -> st.SearchStrategy[bytes]:
    """A file of tests/data/proc as it should not be."""
    return st.one_of(mutated((PROC / name).read_bytes()), st.binary(max_size=80))


@profile(60 * len(PARSERS))
@given(st.sampled_from(PARSERS).flatmap(lambda pair: st.tuples(st.just(pair[0]), damaged(pair[1]))))
def test_files_of_the_kernel(case: tuple[Callable[[bytes], object], bytes]) -> None:
    parse, data = case
    with contextlib.suppress(ValueError):
        parse(data)


@profile(60)
@given(mutated((PROC / "cgroup-v1").read_bytes()), mutated((PROC / "mountinfo-v1").read_bytes()))
def test_where_a_control_group_is(groups: bytes, mounts: bytes) -> None:
    try:
        memberships, mounted = control_group.parse_memberships(groups), control_group.parse_mounts(mounts)
    except ValueError:
        return
    for controller in ("memory", "cpu", None):
        location = control_group.locate(memberships, mounted, controller)
        if location is not None:
            chain = control_group.ancestors(location)
            assert len(chain) <= location.path.count("/") + 1


@profile(120)
@given(st.sampled_from([path.read_bytes() for path in sorted((DATA / "drm").glob("*.txt"))]).flatmap(mutated))
def test_files_of_drivers(data: bytes) -> None:
    client = drm.parse_drm_fdinfo(data.decode(errors="replace"))
    if client is not None:
        assert client.device_bytes >= 0


@profile(100)
@given(st.text(max_size=40))
def test_kernel_releases(release: str) -> None:
    assert kernel.rss_error(1, 1, release) > 0


PERF = b"""     1.000123456         12,345,678      LLC-load-misses:u         #  1.23% of all LL-cache accesses  (50.0%)
123456;;cache-misses;100;50.00;;
<not supported>;;LLC-loads;0;100.00;;
   <not counted>      cycles
"""


@profile(150)
@given(st.one_of(mutated(PERF), st.binary(max_size=200)), st.text(max_size=12))
def test_output_of_perf(data: bytes, event: str) -> None:
    text = data.decode("utf-8", "replace")
    counts = perf.parse_csv(text)
    perf.describe(counts, 1.0)
    perf.process_lines(text, event)
    for line in text.splitlines():
        perf.parse_line(line)


@profile(40)
@given(st.one_of(mutated((DATA / "phi3_asym.csv").read_bytes(), 6), st.binary(max_size=200)))
def test_tables_of_accuracy(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_bytes(data)
        try:
            tradeoff.markdown(tradeoff.read(path))
        except MemwatchError as error:
            assert "\n" not in str(error)  # noqa: PT017 - one sentence, whatever it says


# -- what people write


OPTIONS = list(config.OPTIONS.values())
ODD = st.sampled_from(["", " ", "nan", "inf", "-inf", "1e999", "-1", "0", "\u0661", "1_0", "[::1]:9", ":9", "a:b", "\0",
                       "http://[", "http://x:0", "http://a@b", "x" * 9000, ".prom", "0x1", "http://\ud800"])  # fmt: skip


@profile(60 * len(OPTIONS))
@given(st.sampled_from(OPTIONS), st.one_of(ODD, st.text(max_size=30)))
def test_options(option: config.Option, text: str) -> None:
    try:
        option.parse(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - says why
    try:
        config.settings(option.commands[0], {}, {option.variable: text})
    except MemwatchError as error:
        assert option.variable in str(error)  # noqa: PT017 - names the variable


ENVIRONMENT = st.dictionaries(
    st.sampled_from(
        ["OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_SDK_DISABLED", "OTEL_METRICS_EXPORTER",
         "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
         "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_METRIC_EXPORT_INTERVAL",
         "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_COMPRESSION", "GITHUB_ACTIONS", "GITLAB_CI", "JENKINS_URL",
         "GIT_URL", "KUBERNETES_SERVICE_HOST", "HOSTNAME", "SLURM_JOB_ID", "GITHUB_RUN_ID", "GITHUB_SERVER_URL"]
    ),
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(["http://[::1", "http://x:99999999", "%", "%zz=%", "a=b,=,c", "=,=", "grpc", "1e400", "nan",
                         "-5", "://", "http://", "\ud800", "x:4317", "a" * 20000]),
    ),
    max_size=6,
)  # fmt: skip


@profile(150)
@given(ENVIRONMENT)
def test_variables(environ: dict[str, str]) -> None:
    wanted = telemetry_settings.wanted({}, environ)
    assert wanted.interval > 0
    resource.ci_attributes(environ)
    assert resource.resource_attributes({"id": "x"}, environ)["service.name"]
    with contextlib.suppress(MemwatchError):
        socket.listen(environ).socket.close()
    for endpoint in (wanted.metrics, wanted.spans):
        if endpoint is not None:
            assert endpoint.timeout > 0
            try:
                with mock.patch.object(os, "environ", environ):
                    exporters.open_exporter("traces", endpoint).exporter.shutdown()
            except MemwatchError as error:
                assert "\n" not in str(error)  # noqa: PT017 - one sentence


@profile(150)
@given(
    st.one_of(
        st.text(max_size=60), mutated(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").map(repr)
    )
)
def test_traceparents(text: str) -> None:
    found = parse_traceparent(text)
    assert found is None or [len(part) for part in found] == [32, 16]


# -- operations


OPENING = {"open": 2, "time": 1001.5, "name": "x", "trace": "1" * 32, "span": "2" * 16, "parent": None, "thread": 1,
           "rss": 100, "segment": 120, "attributes": {"a": 1}, "exported": True}  # fmt: skip
CLOSING = {"close": 2, "time": 1002.5, "status": "ok", "error": None, "rss": 100, "segment": 130, "peak": 130, "low": 1,
           "high": 200, "certainty": "exact", "cpu_user": 0.1, "cpu_system": 0.1, "minor_faults": 1, "gpu": {}}  # fmt: skip
HEADER = {"schema": 1, "pid": 42, "start": 1000.0, "program": "x", "exact": True, "floor": 0}


@profile(300)
@given(st.lists(st.one_of(changed(HEADER), changed(OPENING), changed(CLOSING), JSON_VALUES), max_size=6))
def test_lines_of_operations(lines: list[Any]) -> None:
    taken = OperationLines(1)
    taken.add(line_of(line) for line in lines if isinstance(line, dict))
    for operation in taken.still_open():
        assert isinstance(operation.name, str)
    assert taken.largest is None or taken.largest[0] is not None


@profile(150)
@given(st.text(max_size=300), st.dictionaries(st.text(max_size=10), JSON_VALUES, max_size=4))
def test_names_and_attributes_that_a_program_gives(name: str, attributes: dict[str, Any]) -> None:
    import json

    clean_name(name)
    assert json.loads(quote(name)) is not None
    json.loads(attributes_text(attributes))


# -- what people are shown


@profile(200)
@given(st.lists(st.text(max_size=30), max_size=6), st.integers(1, 60))
def test_commands_as_they_are_shown(argv: list[str], width: int) -> None:
    """No control character, change of direction or extra line reaches a terminal."""
    assert len(masking.mask_arguments(argv)) == len(argv)
    masking.public_name(argv)
    for text in (
        formatting.command_line(argv),
        formatting.command_line(argv, width),
        formatting.clean(" ".join(argv)),
    ):
        assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in text)
        assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
