"""Amounts read from text: options, budgets and conditions accept the same ones."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch import config, units
from otel_memwatch import text as formatting
from otel_memwatch.errors import UsageError
from otel_memwatch.wings.gate.budgets import Budget
from otel_memwatch.wings.index.filter import where
from otel_memwatch.wings.index.indexed_run import IndexedRun

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = [
    ("4096", 4096), ("4096B", 4096), ("4096 bytes", 4096), ("1 byte", 1), ("50M", 50 * MIB), ("50m", 50 * MIB),
    ("50MiB", 50 * MIB), ("50 MiB", 50 * MIB), ("50mib", 50 * MIB), ("50MB", 50 * 10**6), ("8K", 8 * KIB), ("8kB", 8000),
    ("8KB", 8000), ("8KiB", 8 * KIB), ("2G", 2 * GIB), ("1.5GiB", 1.5 * GIB), ("2GB", 2e9), ("1T", 1 << 40), ("1e3KiB", 1024_000),
]  # fmt: skip
NO_SIZES = [
    "",
    "MiB",
    "2XB",
    "GiB2",
    "two",
    "nan",
    "infGiB",
    "nanMiB",
    "1 2",
    "5%",
    "0x10",
    "1e400",
    "1" * 5000,
    "1e300GiB",
]
DURATIONS = [
    ("90", 90), ("90s", 90), ("90 s", 90), ("500ms", 0.5), ("10min", 600), ("10m", 600), ("2h", 7200), ("2H", 7200), ("3d", 259200),
    ("1w", 604800), ("1e-1", 0.1), ("1h30m", 5400), ("2 h 05 min", 7500), ("3 min 05 s", 185),
]  # fmt: skip
NO_DURATIONS = [
    "",
    "s",
    "soon",
    "2GiB",
    "nan",
    "infs",
    "1 2",
    "1h30",
    "h1",
    "1h-5m",
    "1..5h2m",
    "5%",
    "1h" * 5000,
]


@pytest.mark.parametrize(("text", "value"), SIZES)
def test_every_reader_of_sizes_gives_the_same(text, value):
    assert units.parse_size(text) == config.parse_size(text) == value
    assert Budget.parse(f"memory={text}").limit == value
    assert where(f"memory='{text}'")(IndexedRun("a", "a", "finished", memory=int(value)))


@pytest.mark.parametrize("text", NO_SIZES)
def test_every_reader_of_sizes_refuses_the_same(text):
    for read in (units.parse_size, config.parse_size):
        with pytest.raises(ValueError, match="is not a size"):
            read(text)
    for judge, given_text in ((Budget.parse, f"memory={text}"), (where, f"memory='{text}'")):
        with pytest.raises(UsageError):
            judge(given_text)


@pytest.mark.parametrize(("text", "value"), DURATIONS)
def test_every_reader_of_durations_gives_the_same(text, value):
    for read in (units.parse_duration, config.parse_duration, config.parse_seconds):
        assert read(text) == pytest.approx(value)
    assert Budget.parse(f"seconds={text}").limit == pytest.approx(value)
    assert where(f"duration='{text}'")(IndexedRun("a", "a", "finished", seconds=units.parse_duration(text)))


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_every_reader_of_durations_refuses_the_same(text):
    for read in (units.parse_duration, config.parse_duration, config.parse_seconds, config.parse_interval):
        with pytest.raises(ValueError, match="is not a duration"):
            read(text)
    for judge, given_text in ((Budget.parse, f"seconds={text}"), (where, f"duration='{text}'")):
        with pytest.raises(UsageError):
            judge(given_text)


@given(st.floats(0, 1e9, allow_subnormal=False))
def test_a_printed_duration_can_be_read(seconds):
    printed = formatting.duration(seconds)
    assert formatting.duration(units.parse_duration(printed)) == printed


@given(st.integers(0, 2**49))
def test_a_printed_size_can_be_read(value):
    printed = formatting.size(value)
    assert formatting.size(units.parse_size(printed)) == printed


@pytest.mark.parametrize(
    "text", ["2026-11-01", "2026-11-01T12:30", "2026-11-01T12:30:05", "2026-11-01 12:30:05"]
)
def test_a_moment_is_a_local_time(text):
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(units.parse_moment(text)))
    assert shown.startswith(text.replace("T", " "))


@pytest.mark.parametrize(("text", "ago"), [("14d", 14 * 86400), ("-6h", 6 * 3600), ("1d12h", 36 * 3600)])
def test_a_moment_is_how_long_ago(text, ago):
    assert units.parse_moment(text) == pytest.approx(time.time() - ago, abs=5)


@pytest.mark.parametrize(
    "text", ["1", "", "-", "2026-13-01", "1.5", "soon", "2026", "2026-11-01T", "9" * 5000]
)
def test_other_texts_are_no_moments(text):
    with pytest.raises(ValueError, match=r"is not a (moment|duration)"):
        units.parse_moment(text)


@pytest.mark.parametrize("text", ["5", "nan%", "-5%", "%", "5%%", "five%"])
def test_a_share_needs_a_percent_sign_and_is_not_negative(text):
    assert units.parse_share("5%") == units.parse_share(" 5 %") == 0.05
    with pytest.raises(ValueError, match="is not a share such as 5%"):
        units.parse_share(text)
