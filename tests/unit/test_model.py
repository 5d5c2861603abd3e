"""Words of a peak's evidence, as records of all releases have them."""

from __future__ import annotations

import pytest

from otel_memwatch.model import Evidence, evidence_of


@pytest.mark.parametrize("evidence", Evidence)
def test_words_of_a_record_give_its_evidence(evidence: Evidence) -> None:
    assert evidence_of(evidence.words) == (evidence,)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("at one tick, page faults", (Evidence.ONE_SAMPLE, Evidence.PAGE_FAULTS)),
        ("sum of resident sizes at ticks", (Evidence.RSS_SUM,)),
        ("VmHWM; up to the last tick", (Evidence.PROCESS_PEAK, Evidence.UP_TO_LAST_SAMPLE)),
        ("at one tick, by guess", ()),
    ],
)
def test_words_of_older_releases_give_their_evidence(how: str, expected: tuple[Evidence, ...]) -> None:
    assert evidence_of(how) == expected
