"""Laws of the house that no linter knows: metric names stand in the catalogue alone, only `truth` constructs peaks, ARCHITECTURE is true."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import otel_memwatch
from otel_memwatch.catalog import METRICS

PACKAGE = Path(otel_memwatch.__file__).parent


@functools.cache
def nodes() -> list[tuple[Path, ast.Constant | ast.ClassDef | ast.Call]]:
    """Return every constant, class and call of the package: three tests look through them, and parsing takes seconds."""
    return [
        (path, node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant | ast.ClassDef | ast.Call)
    ]


def calls() -> list[tuple[Path, ast.Call]]:
    return [(path, node) for path, node in nodes() if isinstance(node, ast.Call)]


def test_metric_names_stand_in_the_catalogue_alone() -> None:
    elsewhere = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path, node in nodes()
        if path.name != "catalog.py" and isinstance(node, ast.Constant) and node.value in METRICS
    ]
    assert elsewhere == []


def test_names_of_the_catalogue_are_spelt_as_the_metrics() -> None:
    from otel_memwatch import catalog

    assert {name: vars(catalog).get(name.upper().replace(".", "_")) for name in METRICS} == {
        n: n for n in METRICS
    }


PUBLIC_TWICE = {"GPUMemory"}
"""`otel_memwatch.GPUMemory`, and the tuple of that name in the fastai utilities that it supersedes."""


def test_a_class_name_exists_once() -> None:
    places: dict[str, list[str]] = {}
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert places
    assert {
        name: found for name, found in places.items() if len(found) > 1 and name not in PUBLIC_TWICE
    } == {}


CONSTRUCTORS = {"exact", "interval", "censored", "sampled"}


def test_only_truth_constructs_peaks() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, node in calls()
        if path.parent.name != "truth" and path != PACKAGE / "model.py" and constructs_a_peak(node.func)
    ]
    assert found == []


def constructs_a_peak(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return (
            called.attr in CONSTRUCTORS and isinstance(called.value, ast.Name) and called.value.id == "Peak"
        )
    return isinstance(called, ast.Name) and called.id == "Peak"


@pytest.mark.skipif(not (PACKAGE / "ARCHITECTURE.md").exists(), reason="an installed wheel has only the code")
def test_architecture_names_files_that_exist() -> None:
    files = [
        f"/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*") if path.suffix in (".py", ".c", ".js")
    ]
    named = set(re.findall(r"`([\w./-]+\.(?:py|c|js))`", (PACKAGE / "ARCHITECTURE.md").read_text()))
    assert named
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []


@pytest.mark.skipif(not (PACKAGE / "ARCHITECTURE.md").exists(), reason="an installed wheel has only the code")
def test_architecture_names_functions_that_exist() -> None:
    table = (
        (PACKAGE / "ARCHITECTURE.md")
        .read_text()
        .partition("### Where to look first")[2]
        .partition("\n## ")[0]
    )
    named = re.findall(r"`([\w./]+\.(?:py|js))`: ([^|;]*)", table)
    assert len(named) >= 9
    absent = [
        f"{file}: {name}"
        for file, names in named
        for name in re.findall(r"`(\w+)`", names)
        if not re.search(rf"(?:def |function |^){name}\b", (PACKAGE / file).read_text(), re.MULTILINE)
    ]
    assert absent == []
