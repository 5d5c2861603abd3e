"""Advice written into a Kubernetes manifest only if it belongs there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.wings.advice.advice import advise, job_of
from otel_memwatch.wings.advice.manifest import patch, quantity
from otel_memwatch.wings.advice.recommendation import Advice
from tests.unit.wings.advice.test_advice import row

if TYPE_CHECKING:
    from pathlib import Path


def manifest(tmp_path: Path, memory: str | None = "4Gi", **fields: Any) -> Path:
    """A pod of one container, with these fields in YAML's flow form."""
    lines = [
        f"        {name}: {value}" for name, value in ({"name": "web", "image": "nginx:1"} | fields).items()
    ]
    resources = [] if memory is None else [f"        resources: {{limits: {{memory: {memory}}}}}"]
    path = tmp_path / "job.yaml"
    path.write_text(
        "\n".join(["kind: Pod", "spec:", "    containers:", "      -", *lines, *resources]) + "\n"
    )
    return path


def advice_of(runs: int = 6, **fields: Any) -> Advice:
    (advice,) = advise([row(100, **fields)] * runs, by=job_of)
    return advice


@pytest.mark.parametrize(
    ("fields", "container", "accepted"),
    [
        ({}, None, False),
        ({}, "web", True),
        ({"name": "train"}, None, True),
        ({"image": "example.org/team/train:2"}, None, True),
        ({"command": "[python, /app/train.py]"}, None, True),
        ({"command": "[sh, -c]", "args": "['otel-memwatch wrap -- python train.py']"}, None, True),
        ({"command": "[python, serve.py]"}, None, False),
        ({"command": "[python, serve.py]"}, "web", False),
    ],
)
def test_a_container_of_another_job_is_left_alone(
    fields: dict[str, Any], container: str | None, accepted: bool, tmp_path: Path
) -> None:
    path = manifest(tmp_path, **fields)
    before = path.read_text()
    if accepted:
        assert any("limits.memory" in line for line in patch(str(path), advice_of(), container, write=True))
        assert path.read_text() != before
        return
    with pytest.raises(UsageError, match="does not look like the job") as caught:
        patch(str(path), advice_of(), container, write=True)
    assert "--yes" in str(caught.value.hint)
    assert path.read_text() == before
    *changes, doubt = patch(str(path), advice_of(), container, write=False)
    assert changes
    assert "not written without --yes" in doubt
    assert patch(str(path), advice_of(), container, write=True, confirmed=True) == changes
    assert path.read_text() != before


@pytest.mark.parametrize(
    ("memory", "runs", "accepted"),
    [("4Gi", 1, False), ("4Gi", 2, True), ("64Mi", 1, True), (None, 1, True), ("4000M", 1, False)],
)
def test_one_run_lowers_no_memory(memory: str | None, runs: int, accepted: bool, tmp_path: Path) -> None:
    """4Gi became 108Mi from one run, without a question."""
    path = manifest(tmp_path, memory, name="train")
    if accepted:
        assert patch(str(path), advice_of(runs), None, write=True)
        return
    with pytest.raises(UsageError, match="would fall from 4"):
        patch(str(path), advice_of(runs), None, write=True)


def test_a_lower_bound_lowers_no_memory(tmp_path: Path) -> None:
    path = manifest(tmp_path, name="train")
    with pytest.raises(UsageError, match="would fall from 4Gi"):
        patch(str(path), advice_of(high=None, certainty="interval"), None, write=True)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4Gi", 4 << 30),
        ("512M", 512_000_000),
        ("1e9", 10**9),
        ("128974848", 128974848),
        ("1500m", 1.5),
        ("?", None),
    ],
)
def test_quantities_of_kubernetes(text: str, size: float | None) -> None:
    assert quantity(text) == size
