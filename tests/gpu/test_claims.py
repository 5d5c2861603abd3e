"""The claims on real hardware; skipped without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.gpu.claims import CLAIMS, SOURCE, Claim, reason_to_skip
from tests.gpu.hardware import run
from tests.support.nvml import FIRST, GIB, Machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.gpu
@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.name for claim in CLAIMS])
def test_claim(claim: Claim) -> None:
    reason = reason_to_skip(claim)
    if reason is not None:
        pytest.skip(reason)
    finding = claim.measure()
    assert finding.holds, f"{finding.measured}, expected {finding.expected}"


def test_the_claims_ask_the_source_as_it_is_now(tmp_path: Path) -> None:
    """Without a GPU the claims do not run: a scripted driver shows that their programs still fit the source."""
    machine = Machine(tmp_path / "script")
    machine.card(0, uuid=FIRST, used=3 * GIB)
    code = (
        SOURCE
        + 'gpu = opened(); print(values(gpu, {"hw.gpu.memory.usage"}), gpu.info()[0]["processes"], gpu.costs())'
    )
    assert str(3 * GIB) in run(code, **machine.environment()).stdout
