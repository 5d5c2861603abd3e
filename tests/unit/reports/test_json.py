"""The JSON report against its schema: a contract with other programs."""

from __future__ import annotations

import json
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import jsonschema
import pytest

from otel_memwatch.reports import render
from otel_memwatch.reports.json import document
from otel_memwatch.run import load
from tests.support import recorded

SCHEMA = json.loads((files("otel_memwatch.reports") / "report.schema.json").read_text())


@pytest.mark.parametrize("name", ["short", "workers", "nested", "gpus"])
def test_the_document_keeps_the_contract(name: str, tmp_path: Path) -> None:
    run = load(getattr(recorded, name)(tmp_path / "run"))
    out = BytesIO()
    render("json", run, out)
    assert out.getvalue().isascii()
    told = json.loads(out.getvalue())
    jsonschema.validate(told, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert len(told["operations"]) == len(run.operations)
    assert len(told["processes"]) == len(run.processes)


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_many_operations_are_written_as_few_are(
    indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, few, many = load(recorded.nested(tmp_path / "run")), BytesIO(), BytesIO()
    render("json", run, few, indent=indent)
    monkeypatch.setattr("otel_memwatch.reports.json._MANY", 1)
    render("json", run, many, indent=indent)
    assert len(run.operations) > 1
    assert many.getvalue() == few.getvalue()


def test_a_bare_run_keeps_it_too(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 1}')
    jsonschema.validate(
        json.loads(json.dumps(document(load(tmp_path)))), SCHEMA, cls=jsonschema.Draft202012Validator
    )


def test_the_schema_would_notice(tmp_path: Path) -> None:
    told = document(load(recorded.short(tmp_path / "run")))
    told["peaks"]["tree"]["bytes"] = 1.5
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(told, SCHEMA, cls=jsonschema.Draft202012Validator)


def test_the_keys_stand_in_the_order_of_the_contract(tmp_path: Path) -> None:
    told = document(load(recorded.nested(tmp_path / "run")))
    assert list(told)[:7] == SCHEMA["required"]
    for part in ("run", "ended", "peaks", "totals", "quality"):
        required = SCHEMA["properties"][part]["required"]
        assert list(told[part])[: len(required)] == required
    required = SCHEMA["$defs"]["operation"]["required"]
    assert list(told["operations"][0])[: len(required)] == required


def test_the_values_are_those_of_the_run(tmp_path: Path) -> None:
    told = document(load(recorded.nested(tmp_path / "run")))
    assert told["run"]["started"] == "2026-09-21T14:13:20.000Z"
    assert told["ended"] == {
        "exit_code": None,
        "signal": 9,
        "oom_kills": 1,
        "reason": "killed by SIGKILL: the kernel's OOM killer, at 512.0 MiB of 512.0 MiB",
    }
    assert told["peaks"]["tree"]["bytes"] == round(498.2 * recorded.MIB)
    assert told["totals"]["read_bytes"] == 3 * recorded.MIB
    assert told["quality"]["ticks"] == 110
    assert told["limit"] == {"bytes": 512 * recorded.MIB, "whose": "control group"}
    read = next(op for op in told["operations"] if op["name"] == "Read weights")
    assert read["parent"] == 0
    assert read["depth"] == 1
    assert read["peak"]["bytes"] == 180 * recorded.MIB
    assert read["start"] == pytest.approx(0.6)
