"""Samples have named fields, whatever columns a record has and in whatever order."""

from __future__ import annotations

import random

from otel_memwatch.catalog import METRICS
from otel_memwatch.record.schema import FIELDS, Sample, fields_in, sample_maker, series_picker
from tests.support.run_directory import column

MINOR, MAJOR = (
    column("memwatch.tree.paging.faults", system__paging__fault__type=kind) for kind in ("minor", "major")
)
RSS, SECOND_GPU, FIRST_GPU = (
    column("memwatch.tree.memory.usage"),
    *(column("hw.gpu.memory.usage", hw__id=name) for name in "BA"),
)


def test_every_field_has_a_metric_of_the_catalogue() -> None:
    assert {metric for metric, _ in FIELDS.values()} <= METRICS.keys()
    assert Sample._fields == ("time", *FIELDS, "row")


def test_fields_are_found_in_any_order() -> None:
    columns = [MINOR, MAJOR, RSS, SECOND_GPU, FIRST_GPU]
    for seed in range(5):
        random.Random(seed).shuffle(columns)
        values = {MINOR: 100, MAJOR: 7, RSS: 5, SECOND_GPU: 2, FIRST_GPU: 1}
        sample = sample_maker(columns)((9.5, *(values[one] for one in columns)))
        assert (sample.time, sample.rss, sample.faults, sample.major_faults) == (9.5, 5, 107, 7)
        assert sample.main is None
        keys, pick = series_picker(columns, {"hw.gpu.memory.usage"})
        assert dict(zip(keys, pick(sample.row), strict=True)) == {
            (one.metric, one.attributes): values[one] for one in columns if one in (SECOND_GPU, FIRST_GPU)
        }
    assert fields_in(columns) == {"rss", "faults", "major_faults"}


def test_a_short_row_lacks_its_last_values() -> None:
    make = sample_maker([RSS, MINOR, MAJOR])
    assert (make((1.0, 5, 3)).faults, make((1.0, 5, 3)).rss) == (None, 5)
    assert make((1.0,)).rss is None
    assert make((1.0,)).row[:4] == (1.0, None, None, None)


def test_one_series_and_none() -> None:
    for columns, values in (([RSS, FIRST_GPU], (3,)), ([RSS], ())):
        _, pick = series_picker(columns, {"hw.gpu.memory.usage"})
        assert pick(sample_maker(columns)((1.0, 5, 3)[: len(columns) + 1]).row) == values
