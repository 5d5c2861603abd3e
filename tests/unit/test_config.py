"""Settings: where they come from, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otel_memwatch.config import (
    MAX_INTERVAL,
    MIN_INTERVAL,
    OPTIONS,
    ignored,
    parse_interval,
    parse_limit,
    settings,
)
from otel_memwatch.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.1", 0.1),
        ("100ms", 0.1),
        ("1s", 1.0),
        ("2min", 120.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        (" 5 ", 5.0),
        ("1e-1", 0.1),
    ],
)
def test_intervals(text: str, seconds: float) -> None:
    assert parse_interval(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "", "fast", "2h", "0.0001", "--", "1 2"])
def test_bad_intervals_name_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="--interval: "):
        settings("wrap", {"interval": text}, {})


@given(st.text())
def test_any_text_is_an_interval_or_an_error(text: str) -> None:
    try:
        seconds = parse_interval(text)
    except ValueError:
        return
    assert MIN_INTERVAL <= seconds <= MAX_INTERVAL


@given(
    st.floats(MIN_INTERVAL, MAX_INTERVAL),
    st.sampled_from([("", 1.0), ("s", 1.0), ("ms", 1e-3), ("min", 60.0)]),
)
def test_any_number_in_range_is_an_interval_in_every_unit(seconds: float, unit: tuple[str, float]) -> None:
    assume(MIN_INTERVAL <= seconds / unit[1] * unit[1] <= MAX_INTERVAL)  # the last digit may be lost
    assert parse_interval(f"{seconds / unit[1]!r}{unit[0]}") == pytest.approx(seconds)


def test_given_beats_environment_beats_default() -> None:
    environ = {"OTEL_MEMWATCH_INTERVAL": "0.5", "OTEL_MEMWATCH_QUIET": "1"}
    assert settings("wrap", {"interval": "0.2"}, environ)["interval"] == 0.2
    assert settings("wrap", {}, environ)["interval"] == 0.5
    assert settings("wrap", {}, {})["interval"] == OPTIONS["interval"].default
    assert settings("wrap", {}, environ)["quiet"] is True
    assert settings("wrap", {"quiet": False}, environ)["quiet"] is False


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(UsageError, match="OTEL_MEMWATCH_CGROUP: 'maybe' is not one of auto, off, require"):
        settings("wrap", {}, {"OTEL_MEMWATCH_CGROUP": "maybe"})


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="'intervall'"):
        settings("watch", {"intervall": 1}, {})


@pytest.mark.parametrize(
    "url",
    ["ftp://me:S3CRET@host/x", "ftp://me:S3@CRET@host/x", "ftp://me:S3/CRET@host/x", "ftp://:S3CRET@host/x"],
)
def test_a_store_with_a_password_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(UsageError, match="--upload: the URL contains a password") as caught:
        settings("wrap", {"upload": url}, {})
    assert "S3" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["s3://bucket/a:b@c", "sftp://me@host:22/a@b", "hdfs://host:8020/x", "s3a://bucket/runs"]
)
def test_a_store_without_a_password_is_accepted(url: str) -> None:
    assert settings("wrap", {"upload": url}, {})["upload"] == url


def test_settings_without_effect_are_accepted_with_a_sentence() -> None:
    assert ignored(settings("wrap", {}, {})) == []
    for passed, environ in (({"exact": True}, {}), ({}, {"OTEL_MEMWATCH_EXACT": "1"})):
        (sentence,) = ignored(settings("wrap", passed, environ))
        assert sentence.startswith("--exact is ignored")


def test_a_limit_with_the_name_of_a_budget_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        ValueError, match=r"'memory=150MiB' is not a size \(write 150MiB; --budget has names\)"
    ):
        parse_limit("memory=150MiB")
