"""Captured stacks in the formats of other programs, read by these where they are installed."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

from otel_memwatch.errors import RunError
from otel_memwatch.record.otlp_json import parse_json
from otel_memwatch.record.stacks import Capture, CapturedThread, StackFrame, Stacks
from otel_memwatch.reports import REPORTS, render
from otel_memwatch.reports.html.flame import flame

MIB = 1 << 20
MAIN = StackFrame("main", "/app/train.py", 9)
LOAD = StackFrame("load;all", "/app/train.py", 3)
HOSTILE = StackFrame("</text><script>\n\ud800", '"><img>', 0)
TRACE, SPAN = "ab" * 16, "cd" * 8
FORMATS = ("folded", "speedscope", "pprof", "gperftools", "otlp-profiles")


def _run(*captures: Capture) -> Any:
    return SimpleNamespace(
        id="run",
        info={"command": ["python", "train.py"]},
        stacks=Stacks(captures, 0, True, ()),
        started=100.0,
        started_wall=1_790_000_000.0,
        seconds=5.0,
        trace={"trace_id": TRACE, "span_id": SPAN},
        capture_spans={},
    )


def _capture(time: float, grown: int, *frames: StackFrame, pid: int = 7) -> Capture:
    thread = CapturedThread(pid, "", True, 1, frames)
    return Capture(time, 0, pid, "python", 0, 0, grown * MIB, 0.01, "py-spy", (thread,))


RUN = _run(
    _capture(101, 30, LOAD, MAIN), _capture(102, 10, HOSTILE, LOAD, MAIN), _capture(103, 5, MAIN, pid=8)
)


def _rendered(name: str, run: Any = RUN) -> bytes:
    out = io.BytesIO()
    render(name, run, out)
    return out.getvalue()


def test_folded_lines_have_the_outermost_call_first() -> None:
    first, second, third = _rendered("folded").decode("utf-8", "surrogatepass").splitlines()
    assert first == f"main (train.py:9);load,all (train.py:3) {30 * MIB}"
    assert second.startswith("main (train.py:9);load,all (train.py:3);")
    assert third == f"main (train.py:9) {5 * MIB}"


def test_speedscope_has_one_profile_for_each_process() -> None:
    found = json.loads(_rendered("speedscope"))
    frames = [frame["name"] for frame in found["shared"]["frames"]]
    one, other = found["profiles"]
    assert next([frames[number] for number in sample] for sample in one["samples"]) == ["main", "load;all"]
    assert (one["weights"], one["endValue"], one["unit"]) == ([30 * MIB, 10 * MIB], 40 * MIB, "bytes")
    assert other["weights"] == [5 * MIB]


def _fields(data: bytes) -> list[tuple[int, Any]]:
    """Decode one level of a protobuf message."""
    found, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            size = varint()
            found.append((key >> 3, data[at : at + size]))
            at += size
    return found


def test_pprof_has_each_location_once() -> None:
    fields = _fields(gzip.decompress(_rendered("pprof")))
    numbers = [number for number, _ in fields]
    assert (numbers.count(2), numbers.count(4), numbers.count(5)) == (3, 3, 3)
    strings = [value for number, value in fields if number == 6]
    assert strings[0] == b""
    assert {b"main", b"/app/train.py", b"growth", b"bytes"} <= set(strings)


def test_gperftools_has_a_name_for_each_number() -> None:
    assert _rendered("gperftools", _run(_capture(101, 30, LOAD, MAIN), _capture(103, 5, MAIN, pid=8))) == (
        b"--- symbol\nbinary=otel-memwatch\n0x1 load;all@train.py:3\n0x2 main@train.py:9\n---\n"
        b"heap profile: 1: 36700160 [1: 36700160] @ growth\n"
        b"1: 31457280 [1: 31457280] @ 0x1 0x2\n1: 5242880 [1: 5242880] @ 0x2\n"
    )
    assert b"\n</text>" not in _rendered("gperftools")


def test_otlp_profiles_are_those_of_the_published_protobuf() -> None:
    message = parse_json(_rendered("otlp-profiles"), ProfilesData())
    tables = message.dictionary
    (profile,) = message.resource_profiles[0].scope_profiles[0].profiles
    assert tables.string_table[profile.sample_type.type_strindex] == "memory_growth"
    assert [list(sample.values) for sample in profile.samples] == [[30 * MIB], [10 * MIB], [5 * MIB]]
    sample = profile.samples[0]
    calls = [
        tables.location_table[number] for number in tables.stack_table[sample.stack_index].location_indices
    ]
    function = tables.function_table[calls[0].lines[0].function_index]
    assert tables.string_table[function.name_strindex] == "load;all"
    assert (tables.string_table[function.filename_strindex], calls[0].lines[0].line) == ("/app/train.py", 3)
    assert tables.link_table[sample.link_index].trace_id.hex() == TRACE
    assert tables.link_table[sample.link_index].span_id.hex() == SPAN
    assert list(sample.timestamps_unix_nano) == [1_790_000_001 * 10**9]
    for table in ("mapping_table", "location_table", "function_table", "link_table", "stack_table"):
        assert not getattr(tables, table)[0].ListFields()


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_without_stacks_says_how_to_get_them(name: str) -> None:
    assert REPORTS[name].exported
    with pytest.raises(RunError, match="--stacks"):
        _rendered(name, _run())


def test_the_flame_can_be_reached_by_keyboard_and_runs_nothing() -> None:
    picture = flame(RUN)
    assert picture.count('tabindex="0"') == 3
    assert "main (train.py), 45.0 MiB, 100 %" in picture
    assert "<script" not in picture
    assert "<img" not in picture
    assert flame(_run()) == ""


def test_calls_have_the_colour_of_their_difference_from_another_run() -> None:
    grown, less, alike = "#c8500a", "#2f7fb8", "#8a949e"
    picture = flame(RUN, _run(_capture(101, 60, MAIN)))
    assert "main (train.py), 45.0 MiB, 100 %, -15.0 MiB" in picture
    assert "40.0 MiB, 89 %, +40.0 MiB" in picture
    assert grown in picture
    assert less in picture
    assert set(re.findall('fill="(#[^"]+)"', flame(RUN, RUN))) == {alike}
    assert flame(RUN, _run()) == ""


def test_a_renamed_script_has_the_same_calls() -> None:
    main, load = (frame._replace(file="/app/learn.py") for frame in (MAIN, LOAD))
    before = _run(_capture(101, 30, load, main), _capture(103, 5, main))
    assert "load;all (train.py), 40.0 MiB, 89 %, +10.0 MiB" in flame(RUN, before)


def test_a_deep_recursion_is_drawn_in_bounds() -> None:
    frames = [StackFrame(f"f{number}", "/a.py", 1) for number in range(200)]
    assert flame(_run(_capture(101, 9, *frames))).count("<rect") == 40


def test_imports_and_calls_without_room_for_a_name_do_not_make_the_picture_tall() -> None:
    main, load = StackFrame("main", "/app/train.py", 30), StackFrame("load", "/app/train.py", 12)
    frozen = StackFrame("exec_module", "<frozen importlib._bootstrap_external>", 940)
    deep = [StackFrame(f"f{number}", "/a.py", 1) for number in range(30)]
    picture = flame(_run(_capture(101, 400, load, frozen, frozen, main), _capture(102, 4, *deep, main)))
    assert "importlib" not in picture
    assert picture.count("<rect") == 3  # main, load, and the outermost of the deep calls
    assert 'viewBox="0 0 1000 40"' in picture


def test_exports_are_written_where_users_expect_them(tmp_path: Path) -> None:
    from otel_memwatch.reports import write

    run = RUN
    run.path = tmp_path
    assert write("pprof", run, tmp_path / "stacks.pb.gz").read_bytes()[:2] == b"\x1f\x8b"
