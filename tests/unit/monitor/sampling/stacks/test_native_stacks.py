"""Stacks of native programs: functions first, source lines later."""

from __future__ import annotations

import os

from otel_memwatch.monitor.sampling.stacks import tools
from otel_memwatch.record.stacks import CapturedThread, StackFrame

EU_STACK = """PID 1195 - process
TID 1195:
#0  0x000000000040118b grow - /tmp/prog
#1  0x00000000004011a2 main - /tmp/prog
#2  0x00007f2c40a9924a __libc_start_main@@GLIBC_2.34 - /usr/lib/libc.so.6
#3  0x00007ffd35a9924a clock_gettime - [vdso: 1195]
#4  0x000055719fe4e061
#5  0x000055719fe4e071 - /usr/bin/stripped
TID 1196:
#0  0x00007f2c40a9924a std::vector<int, (char)-1>::push - /usr/lib/libx.so
"""

ADDR2LINE = """0x000000000040118b: store at /tmp/c.c:4:107
 (inlined by) grow at /tmp/c.c:8:9
0x00000000004011a1: look at me at /tmp/c.c:11
0x0000000000000001: ?? at ??:0
"""


def test_a_call_has_its_function_its_module_and_its_address() -> None:
    first, second = tools.parse_eu_stack(EU_STACK)
    assert first.id == 1195
    assert first.frames == (
        StackFrame("grow", "/tmp/prog", 0, 0x40118B),
        StackFrame("main", "/tmp/prog", 0, 0x4011A1),  # the call, not the instruction after it
        StackFrame("__libc_start_main", "/usr/lib/libc.so.6", 0, 0x7F2C40A99249),
        StackFrame("clock_gettime", "[vdso: 1195]", 0, 0x7FFD35A99249),
        StackFrame("??", "", 0, 0x55719FE4E060),
        StackFrame("??", "/usr/bin/stripped", 0, 0x55719FE4E070),
    )
    assert second.frames[0][:2] == ("std::vector<int, (char)-1>::push", "/usr/lib/libx.so")


def test_output_without_frames_has_no_threads() -> None:
    assert tools.parse_eu_stack("PID 5 - process\nTID 5:\n") == []


def test_lines_replace_addresses_and_inlined_calls_are_added() -> None:
    found = tools.parse_addr2line(ADDR2LINE)
    assert found == {
        0x40118B: [StackFrame("store", "/tmp/c.c", 4), StackFrame("grow", "/tmp/c.c", 8)],
        0x4011A1: [StackFrame("look at me", "/tmp/c.c", 11)],
    }
    (thread, _) = tools.parse_eu_stack(EU_STACK)
    frames = tools.with_lines(thread, found).frames
    assert [frame.function for frame in frames[:3]] == ["store", "grow", "look at me"]
    assert frames[3:] == thread.frames[2:]


def test_only_modules_of_the_program_are_looked_up() -> None:
    own = os.path.realpath("/proc/self/exe")
    with open("/proc/self/maps", encoding="utf-8") as file:
        expected = [row for row in file.read().splitlines() if row.endswith(own)]

    def thread(*files: str) -> CapturedThread:
        return CapturedThread(1, "", False, None, tuple(StackFrame("f", file, 0, 9) for file in files))

    rows = tools.mapped_modules(os.getpid(), [thread(own, "/usr/lib/libc.so.6", "[vdso: 1]", "")])
    assert rows.splitlines() == expected
    assert expected
    assert tools.mapped_modules(os.getpid(), [thread("/usr/lib/libc.so.6")]) == ""
    assert tools.mapped_modules(2**22 + 1, [thread(own)]) == ""


def test_nothing_to_look_up_starts_no_tool() -> None:
    python = CapturedThread(1, "", True, None, (StackFrame("load", "/app/a.py", 3),))
    assert tools.mapped_modules(os.getpid(), [python]) == ""
    assert tools.find_lines("", [python], 0.0) == {}
