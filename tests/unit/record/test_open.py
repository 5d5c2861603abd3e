"""`run.json` by either parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.errors import RunError
from otel_memwatch.record import open as module
from otel_memwatch.record.open import expect_many, read_info

DOCUMENTS = {
    "numbers": b'{"a": 1.5, "b": -0, "c": 0.1e1, "d": 1e400, "e": 123456789012345678901234567890}',
    "no numbers": b'{"a": NaN, "b": -Infinity}',
    "a name twice": b'{"a": 1, "a": 2}',
    "half a character": b'{"a": "\\ud800"}',
    "undecodable": b'{"a": "\xff"}',
    "deep": b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "torn": b'{"a": 1',
    "an array": b"[1]",
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_many_runs_are_parsed_as_one(
    document: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(document)
    monkeypatch.setattr(module, "_parse", module._parse)  # restores it afterwards

    def read() -> str:
        try:
            return repr(read_info(path))
        except RunError as error:
            return error.message

    one = read()
    expect_many()
    assert module._parse is not module.parse
    assert read() == one
