"""Sizes, durations, peaks and names as a person reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch import text as formatting
from otel_memwatch.model import Evidence, Peak

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (312.4 * MIB, "312.4 MiB"),
        (1024 * MIB - 1, "1.00 GiB"),
        (18.73 * 1024 * MIB, "18.73 GiB"),
        (3 * 1024**4, "3.00 TiB"),
    ],
)
def test_sizes(value: float | None, words: str) -> None:
    assert formatting.size(value) == words


@given(st.integers(0, 2**63))
def test_no_size_is_written_with_a_thousand_of_its_unit(value: int) -> None:
    number, unit = formatting.size(value).split()
    assert float(number) < 1024
    assert (
        abs(float(number) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit) - value)
        <= 0.05 * value + 1
    )


def test_changes_have_a_sign() -> None:
    assert [formatting.change(v) for v in (12 * MIB, -4 * MIB, 0)] == ["+12.0 MiB", "-4.0 MiB", "0 B"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "unknown"), (float("nan"), "unknown"), (0, "0 ms"), (0.00042, "0.42 ms"), (0.034, "34 ms"),
        (0.9994, "999 ms"), (0.9999, "1.00 s"), (12.44, "12.4 s"), (59.96, "1 min 00 s"), (185, "3 min 05 s"),
        (3599.6, "1 h 00 min"), (7500, "2 h 05 min"), (86_400, "1 d 00 h"), (-3, "-3.00 s"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, words: str) -> None:
    assert formatting.duration(seconds) == words


@pytest.mark.parametrize(
    ("peak", "sentence", "cell", "certainty"),
    [
        (None, "unknown", "-", ""),
        (
            Peak.exact(300 * MIB, evidence=(Evidence.CGROUP_PEAK,)),
            "300.0 MiB (exact, cgroup watermark)",
            "300.0 MiB",
            "exact",
        ),
        (Peak.exact(300 * MIB), "300.0 MiB (exact)", "300.0 MiB", "exact"),
        (
            Peak.interval(300 * MIB, 410 * MIB),
            "300-410 MiB",
            "300-410 MiB",
            "range",
        ),
        (
            Peak.interval(300 * MIB, 2048 * MIB),
            "0.29-2.00 GiB",
            "0.29-2.00 GiB",
            "range",
        ),
        (Peak.interval(4096, 603 * MIB), "at most 603.0 MiB", "<= 603.0 MiB", "at most"),
        (
            Peak.interval(0, 3 * MIB, estimate=37 << 10),
            "at most 3.0 MiB, best estimate 37.0 KiB",
            "<= 3.0 MiB",
            "at most",
        ),
        (Peak.interval(0, 3 * MIB, estimate=0), "at most 3.0 MiB", "<= 3.0 MiB", "at most"),
        (
            Peak.interval(0, 603 * MIB, estimate=300 * MIB),
            "at most 603.0 MiB, best estimate 300 MiB",
            "<= 603.0 MiB",
            "at most",
        ),
        (Peak.interval(0, None), "unknown", "-", ""),
        (Peak.interval(0, 0), "0 B", "0 B", "range"),
        (Peak.interval(300 * MIB, 300 * MIB), "300.0 MiB (within 0.1 MiB)", "300.0 MiB", "within 0.1 MiB"),
        (
            Peak.interval(300 * MIB, None, evidence=(Evidence.SAMPLES_BETWEEN,)),
            "at least 300.0 MiB (samples)",
            ">= 300.0 MiB",
            "at least",
        ),
        (Peak.censored(9 * MIB), "at most 9.0 MiB", "<= 9.0 MiB", "at most"),
        (
            Peak.censored(9 * MIB, 8 * MIB),
            "8.0-9.0 MiB",
            "8.0-9.0 MiB",
            "range",
        ),
        (
            Peak.interval(300 * MIB, 410 * MIB, evidence=(Evidence.PAGE_FAULTS,), estimate=340 * MIB),
            "300-410 MiB, best estimate 340 MiB (page faults)",
            "300-410 MiB",
            "range",
        ),
        (
            # bounds that read alike: not exact all the same
            Peak.interval(300 * MIB, 300 * MIB + 16384, evidence=(Evidence.PAGE_FAULTS,), estimate=300 * MIB),
            "300.0 MiB (within 0.1 MiB, page faults)",
            "300.0 MiB",
            "within 0.1 MiB",
        ),
        (
            Peak.interval(8 * MIB, 9 * MIB, excludes=("kernel", "files in memory")),
            "8.0-9.0 MiB (excluding files in memory and pipes)",
            "8.0-9.0 MiB",
            "range",
        ),
        (
            Peak.sampled(300 * MIB),
            "300.0 MiB (sampled)",
            "300.0 MiB",
            "sampled",
        ),
        (
            Peak.sampled(300 * MIB, evidence=(Evidence.RSS_SUM,)),
            "300.0 MiB (sampled, sum of resident sizes at samples)",
            "300.0 MiB",
            "sampled",
        ),
        (
            Peak.sampled(300 * MIB, 400 * MIB),
            "300.0 MiB (sampled), at most 400.0 MiB",
            "300.0 MiB",
            "sampled",
        ),
    ],
)
def test_every_certainty_is_reported_in_words(
    peak: Peak | None, sentence: str, cell: str, certainty: str
) -> None:
    assert formatting.peak_sentence(peak) == sentence
    assert formatting.peak_figure(peak) == cell
    assert formatting.certainty(peak) == certainty


def test_a_name_cannot_write_to_the_terminal() -> None:
    hostile = "a\x1b[31m\nb\t\x07\x9b\u202e\udc80\ufeff"
    shown = formatting.clean(hostile)
    assert shown == "a\\x1b[31m\\nb\\t\\x07\\x9b\\u202e\\x80\\ufeff"
    assert formatting.clean("Übung 漢字 \U0001f600") == "Übung 漢字 \U0001f600"


@given(st.text(), st.integers(0, 60))
def test_shortened_text_fits_whatever_it_is(text: str, width: int) -> None:
    short = formatting.shorten(text, width)
    assert formatting.cells(short) <= width
    assert short.isprintable()
    assert short == formatting.clean(text) or formatting.cells(formatting.clean(text)) > width


def test_the_middle_is_left_out() -> None:
    assert formatting.shorten("/a/long/path/to/some/file.txt", 16) == "/a/long...le.txt"


def test_wide_letters_take_two_columns() -> None:
    assert formatting.cells("漢字") == 4
    assert formatting.pad("漢", 4) == "漢  "
    assert formatting.shorten("漢字漢字漢字", 8) in ("漢...字", "漢...字 ")


def test_a_command_is_quoted_as_a_shell_wants_it() -> None:
    assert formatting.command_line(["sh", "-c", "echo 'a b'"]) == """sh -c 'echo '"'"'a b'"'"''"""
    assert "\n" not in formatting.command_line(["python", "-c", "a\nb"])


def test_columns_without_a_value_are_left_out() -> None:
    lines = formatting.table([("a", "", "1"), ("bb", "-", "22")], ("name", "nothing", "n"), "llr")
    assert lines == ["name   n", "a      1", "bb    22"]


def test_shares() -> None:
    assert [formatting.share(part, 1000) for part in (0, 3, 500, 999, 1000)] == [
        "0 %",
        "0.3 %",
        "50 %",
        "99.9 %",
        "100 %",
    ]


@pytest.mark.parametrize(
    ("value", "number", "words"),
    [
        (119.6, 2, "120"),
        (2.1e7, 6, "21000000"),
        (12345678, 6, "12345678"),
        (2.754, 3, "2.75"),
        (0.5, 6, "0.5"),
        (99.96, 3, "100"),
        (7, 6, "7"),
        (-1234.5, 3, "-1234"),
    ],
)
def test_numbers_have_no_exponent(value: float, number: int, words: str) -> None:
    assert formatting.digits(value, number) == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (300, 300.015, "300.0 MiB (within 0.1 MiB)"),
        (263.6, 264.4, "264.4 MiB (within 0.8 MiB)"),
        (263.56, 264.36, "264.4 MiB (within 0.9 MiB)"),
        (1239, 1243, "1.21 GiB (within 0.01 GiB)"),
        (300, 410, "300-410 MiB"),
    ],
)
def test_a_range_that_reads_as_one_figure_says_how_near_it_is(low: float, high: float, words: str) -> None:
    """xz without a cgroup: "peak memory   248.3 MiB" looked exact, and "248.3 MiB (range)" puzzled."""
    peak = Peak.interval(round(low * MIB), round(high * MIB), evidence=(Evidence.PAGE_FAULTS,))
    assert formatting.peak_sentence(peak, source=False) == words
    censored = Peak.censored(round(high * MIB), round(low * MIB))
    assert formatting.peak_sentence(censored) == words
    assert formatting.certainty(peak) == (words.partition("(")[2].rstrip(")") or "range")
