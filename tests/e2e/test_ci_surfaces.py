"""The summary where CI and Kubernetes show it: step summary, termination message, Markdown, GitLab's metrics."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.control_group import group
from tests.support.peers import needed

PROGRAM = """
from otel_memwatch import operation
with operation("read | `all` <b>"):
    x = bytearray(20 << 20)
"""


def wrap(tmp_path, *options, program=PROGRAM, **more):
    environ = {key: value for key, value in os.environ.items() if key != "GITHUB_STEP_SUMMARY"}
    environ |= more.pop("variables", {})
    command = [
        sys.executable,
        "-m",
        "otel_memwatch",
        "wrap",
        "--no-plot",
        f"--out={tmp_path / 'run'}",
        *options,
    ]
    return subprocess.run(
        [*command, "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
        **more,
    )


def report(tmp_path, form):
    command = [sys.executable, "-m", "otel_memwatch", "report", str(tmp_path / "run"), "--format", form]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_markdown_instead_of_text(tmp_path):
    done = wrap(tmp_path, "--summary", "markdown")
    assert done.returncode == 0
    assert "### Memory of " in done.stderr
    assert "| **peak memory** |" in done.stderr
    assert report(tmp_path, "markdown").strip() in done.stderr


def test_an_unknown_form_is_refused_before_anything_is_started(tmp_path):
    done = wrap(tmp_path, "--summary", "html", program="print('started')")
    assert done.returncode == 2
    assert "'html' is not one of text, markdown" in done.stderr
    assert done.stdout == ""


def test_the_github_step_gets_it_by_itself_after_what_exists(tmp_path):
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    done = wrap(tmp_path, variables={"GITHUB_STEP_SUMMARY": str(file)})
    assert "### Memory" not in done.stderr
    assert file.read_text() == "before\n" + report(tmp_path, "markdown")
    (tmp_path / "run").rename(tmp_path / "first")
    wrap(tmp_path, "--no-step-summary", variables={"GITHUB_STEP_SUMMARY": str(file)})
    assert file.read_text().count("### Memory") == 1


def test_a_step_summary_without_room_is_left_as_it_is(tmp_path):
    file = tmp_path / "summary.md"
    file.write_bytes(b"x" * (1 << 20))
    done = wrap(tmp_path, variables={"GITHUB_STEP_SUMMARY": str(file)})
    assert done.returncode == 0
    assert file.stat().st_size == 1 << 20


def test_a_step_summary_that_cannot_be_written_is_one_line(tmp_path):
    done = wrap(
        tmp_path,
        variables={"GITHUB_STEP_SUMMARY": str(tmp_path / "none" / "x")},
        program="raise SystemExit(3)",
    )
    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if "the step's summary could not be made" in line]
    assert len(lines) == 1


def test_names_cannot_break_out_of_the_table(tmp_path):
    wrap(tmp_path)
    row = next(line for line in report(tmp_path, "markdown").splitlines() if line.startswith("| read"))
    assert r"read \| \`all\` \<b\>" in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 6


def test_the_termination_message_is_written_in_place_and_short(tmp_path):
    """The kubelet mounts a file: it cannot be replaced, and only 4096 bytes are read."""
    file = tmp_path / "termination-log"
    file.write_text("x" * 9000)
    before = file.stat().st_ino
    done = wrap(tmp_path, "--termination-log", str(file), "--quiet")
    assert done.stderr == ""
    assert file.stat().st_ino == before
    assert file.stat().st_size <= 4096
    assert "  peak memory   " in file.read_text()
    assert "exit code 0" in file.read_text()


def test_the_termination_message_of_a_job_that_the_oom_killer_ended(tmp_path):
    file = tmp_path / "termination-log"
    with group(80 << 20) as place:
        done = wrap(
            tmp_path, f"--termination-log={file}", "--cgroup=require", preexec_fn=place.enter,
            program="x = []\nwhile True: x.append(bytearray(b'x' * (4 << 20)))",
        )  # fmt: skip
    assert done.returncode == -9
    assert "OOM killer" in file.read_text()
    assert "OOM killer" in report(tmp_path, "markdown")


@pytest.mark.parametrize("option", ["--termination-log"])
def test_a_place_that_cannot_be_written_is_one_line_and_never_the_exit_code(tmp_path, option):
    done = wrap(tmp_path, option, str(tmp_path / "none" / "x"), program="raise SystemExit(3)")
    assert done.returncode == 3
    assert "the termination message could not be made" in done.stderr
    assert "Traceback" not in done.stderr


def test_gitlabs_metrics_are_openmetrics_with_the_figures_of_the_run(tmp_path):
    wrap(tmp_path)
    text = report(tmp_path, "metrics")
    assert text.endswith("# EOF\n")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values["memwatch_tree_memory_peak_bytes"]) > 20 << 20
    assert float(values["memwatch_run_exit_code"]) == 0
    assert (
        float(values['memwatch_operation_memory_peak_bytes{memwatch_operation_name="read | `all` <b>"}'])
        > 20 << 20
    )
    # Timestamps are needed for blocks; the parser that reads them is the one that reads the rest.
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    families = {family.name for family in text_string_to_metric_families(text)}
    assert "memwatch_tree_cpu_time_seconds" in families
    lint = subprocess.run([needed("promtool"), "check", "metrics"], input=text.replace("# EOF\n", ""),
                          capture_output=True, text=True, timeout=30)  # fmt: skip
    assert "error" not in lint.stderr.lower()
