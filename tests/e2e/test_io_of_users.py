"""What a user without privileges reads and writes: kernels deny them the last figures of what has ended."""

from __future__ import annotations

from pathlib import Path

from tests.support.torture import needs_root, trial, unprivileged

MIB = 1 << 20


def test_what_is_written_after_the_last_tick_counts(tmp_path: Path) -> None:
    needs_root()
    tmp_path.chmod(0o777)
    script = f"head -c {8 * MIB} /dev/zero > {tmp_path}/written"
    with trial(tmp_path) as run:
        outcome = run.run(unprivileged(run.command(["sh", "-c", script], "--interval", "5")))
        assert outcome.code == 0, outcome.err
        totals = run.report().json["totals"]
    assert 8 * MIB <= totals["write_bytes"] <= 9 * MIB
    assert totals["read_bytes"] is not None
