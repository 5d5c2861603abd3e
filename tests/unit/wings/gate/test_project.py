"""What a project's pyproject.toml says, and what is no use in one."""

from __future__ import annotations

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.wings.gate.project import Project, project, with_budgets

TABLE = """
[tool.otel-memwatch]
effect = "2%"
[tool.otel-memwatch.budgets]
memory = "2GiB"
"operation:Train" = "1.5GiB"
seconds = 600
"""


def test_the_nearest_file_counts_and_given_budgets_go_before_its(tmp_path):
    (tmp_path / "pyproject.toml").write_text(TABLE)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    texts = ("memory=2GiB", "operation:Train=1.5GiB", "seconds=600")
    assert project(str(below)) == Project(texts, 0.02)
    assert with_budgets({"budget": ("memory=1GiB",), "baseline": None}, str(below))["budget"] == (
        "memory=1GiB",
        *texts[1:],
    )
    (below / "pyproject.toml").write_text("[tool.other]\n")
    assert project(str(below)) == Project()


@pytest.mark.parametrize(
    "text",
    ["[tool.otel-memwatch", '[tool.otel-memwatch]\nbudget = "x"', '[tool.otel-memwatch]\nbudgets = "memory=2GiB"',
     "[tool.otel-memwatch.budgets]\nmemory = true", '[tool.otel-memwatch.budgets]\nmemory = "-2GiB"',
     "[tool.otel-memwatch.budgets]\nseconds = nan", "[tool.otel-memwatch]\neffect = 2", "[tool.otel-memwatch]\nbaseline = 2"],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_with_the_file_s_name(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=r"pyproject\.toml"):
        project(str(tmp_path))


def test_a_file_that_does_not_name_us_is_not_even_read_as_toml(tmp_path):
    (tmp_path / "pyproject.toml").write_text("= broken")
    assert project(str(tmp_path)) == Project()
