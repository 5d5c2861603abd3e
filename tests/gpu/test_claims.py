"""The claims on real hardware; skipped without it."""

from __future__ import annotations

import pytest

from tests.gpu.claims import CLAIMS, Claim, reason_to_skip


@pytest.mark.gpu
@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.name for claim in CLAIMS])
def test_claim(claim: Claim) -> None:
    reason = reason_to_skip(claim)
    if reason is not None:
        pytest.skip(reason)
    finding = claim.measure()
    assert finding.holds, f"{finding.measured}, expected {finding.expected}"
