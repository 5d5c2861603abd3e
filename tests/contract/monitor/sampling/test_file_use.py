"""Files of real processes, by name."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.monitor.sampling import file_use
from otel_memwatch.monitor.sampling.file_use import FIRST, FileUse

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def test_mapped_and_open_files_are_found_with_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_use, "_DESCRIPTORS", 1 << 20)  # the test's own process may have many
    mapped, opened, written = tmp_path / "model.bin", tmp_path / "input.bin", tmp_path / "output.bin"
    mapped.write_bytes(os.urandom(40 * MIB))
    for path in (opened, written):
        path.write_bytes(bytes(3 * MIB))
    use = FileUse(os.getpid())
    with mapped.open("rb") as file, opened.open("rb"), written.open("ab"):
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
            sum(pages[at] for at in range(0, 24 * MIB, 4096))
            use.read([os.getpid(), 2**30], 100.0)  # the second one does not exist
            assert use.to_json() is None
            use.read([os.getpid(), 2**30], 1e6)  # long enough for the budget of any test process
        found = use.to_json()
    assert found is not None
    by_path = {one["path"]: one for one in found["largest"]}
    model = by_path[str(mapped)]
    assert (model["bytes"], model["mapped"]) == (40 * MIB, 40 * MIB)
    assert 24 * MIB <= model["resident"] <= 40 * MIB  # the kernel may map what it read ahead
    # The test's own process maps larger libraries, so not every file is named.
    assert use._files[os.fsencode(opened)] == (3 * MIB, 0, None)
    assert os.fsencode(written) not in use._files
    assert found["number"] == len(by_path) or found["number"] > len(by_path) == 12


def test_a_budget_that_is_used_up_reads_nothing(tmp_path: Path) -> None:
    use = FileUse(os.getpid())
    use.read([os.getpid()], 0.0)
    use._spent = 1.0
    use.read([os.getpid()], FIRST)
    assert use.to_json() is None
    assert use.due > FIRST


def test_unreadable_processes_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "statm").write_text("99999 99999 99999 0 0 0 0\n")
    (folder / "smaps").write_text("garbage\n" * 3)
    use = FileUse(0, str(tmp_path))
    use.read([7, 8], 0.0)
    use.read([7, 8], FIRST)
    assert use.to_json() is None


@pytest.mark.parametrize(("mapped", "named"), [(80, True), (40, False)])
def test_a_file_is_named_if_few_of_its_pages_are_resident(tmp_path: Path, mapped: int, named: bool) -> None:
    """At a memory limit, the kernel drops the others."""
    model, folder = tmp_path / "model.bin", tmp_path / "7"
    with model.open("wb") as file:
        file.truncate(mapped * MIB)
    folder.mkdir()
    (folder / "fd").mkdir()
    (folder / "statm").write_text(f"{(mapped + 9) * MIB // 4096} 2000 600 1 0 {3 * MIB // 4096} 0\n")
    (folder / "smaps").write_text(
        f"7f0000000000-{0x7F0000000000 + mapped * MIB:x} r--s 00000000 08:01 5 {model}\nRss: 1024 kB\n"
    )
    use = FileUse(0, str(tmp_path))
    use.read([7], 0.0)
    use.read([7], FIRST)
    found = use.to_json()
    assert (found is not None) is named
    if found is not None:
        (one,) = found["largest"]
        assert (one["path"], one["mapped"], one["resident"]) == (str(model), mapped * MIB, MIB)
