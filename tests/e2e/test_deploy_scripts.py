"""The scripts of deploy/ at work: GitHub's action, GitLab's template, Slurm's files, the tool in an empty image."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from tests.support.control_group import group
from tests.support.peers import Prometheus, free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PYTHON = sys.executable


@pytest.fixture
def runner(tmp_path):
    """A GitHub runner's environment, with the tool where the action puts it."""
    tools = tmp_path / "otel-memwatch" / "bin"
    tools.mkdir(parents=True)
    (tools / "python").write_text(f'#!/bin/sh\nexec "{PYTHON}" "$@"\n')
    (tools / "otel-memwatch").write_text(f'#!/bin/sh\nexec "{PYTHON}" -m otel_memwatch "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    return {
        **os.environ,
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_ACTION_PATH": str(DEPLOY / "github-actions"),
        "PYTHONPATH": str(ROOT),
    }


def test_the_action_installs_the_tree_that_it_is_part_of_or_what_it_is_reported(runner, tmp_path):
    told = tmp_path / "told"
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "python3").write_text("#!/bin/sh\n")  # the virtual environment exists already
    (fake / "python3").chmod(0o755)
    pip = Path(runner["RUNNER_TEMP"]) / "otel-memwatch" / "bin" / "python"
    pip.write_text(f'#!/bin/sh\necho "$@" >"{told}"\n')
    path = f"{fake}:{os.environ['PATH']}"

    def install(where, **inputs):
        return subprocess.run(
            ["bash", str(where / "install.sh")], env={**runner, "PATH": path, **inputs}, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip

    assert install(DEPLOY / "github-actions", EXTRA="compare").returncode == 0
    assert told.read_text() == f"-m pip install --quiet {ROOT}[compare]\n"
    for package, extra, expected in (
        ("https://example.org/x.whl", "", "https://example.org/x.whl"),
        ("https://example.org/x.whl", "compare", "otel-memwatch[compare] @ https://example.org/x.whl"),
        ("git+https://x.org/y@ab", "compare", "otel-memwatch[compare] @ git+https://x.org/y@ab"),
        ("otel-memwatch[compare] @ file:///x", "compare", "otel-memwatch[compare] @ file:///x"),
        ("dist/x.whl", "compare", "dist/x.whl[compare]"),
    ):
        assert install(DEPLOY / "github-actions", PACKAGE=package, EXTRA=extra).returncode == 0
        assert told.read_text() == f"-m pip install --quiet {expected}\n"
    copied = tmp_path / "a" / ".github" / "actions" / "otel-memwatch"
    shutil.copytree(DEPLOY / "github-actions", copied)
    done = install(copied)
    assert done.returncode == 2
    assert done.stdout.startswith("::error::")


def act(runner, command, name="tests", options="--no-plot", **more):
    """Runs both steps of the action; gives the first one's result, the second one's words, and the outputs."""
    inputs = {"MEMWATCH_COMMAND": command, "MEMWATCH_NAME": name, "MEMWATCH_OPTIONS": options, "MEMWATCH_VERSION": "abc",
              "MEMWATCH_BRANCH": "main"}  # fmt: skip
    first = subprocess.run(
        ["bash", str(DEPLOY / "github-actions" / "run.sh")], env={**runner, **inputs}, capture_output=True, text=True,
        timeout=60, **more,
    )  # fmt: skip
    directory = outputs(runner)["directory"]
    second = subprocess.run(
        ["bash", str(DEPLOY / "github-actions" / "tell.sh")], env={**runner, "DIRECTORY": directory, "NAME": name},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return first, second.stdout


def outputs(runner):
    return dict(line.split("=", 1) for line in Path(runner["GITHUB_OUTPUT"]).read_text().splitlines())


def test_the_action_shows_the_peak_and_gives_it_to_later_steps(runner):
    done, said = act(
        runner,
        "echo one\nenv | grep -v ^MEMWATCH_TEST_ | grep -c ^MEMWATCH_ || true\nfalse | true\necho never",
    )
    assert done.returncode == 1, "a pipe's first command failed"
    assert done.stdout == "one\n0\n"
    assert said == ""
    assert int(outputs(runner)["peak-bytes"]) > 100_000
    assert "| **peak memory** |" in Path(runner["GITHUB_STEP_SUMMARY"]).read_text()
    info = json.loads((Path(outputs(runner)["directory"]) / "run.json").read_text())
    assert info["resource"]["service.name"] == "tests"
    assert info["resource"]["vcs.ref.head.name"] == "main"


def test_the_action_says_that_a_step_was_killed(runner):
    program = f"{PYTHON} -c 'x = []\nwhile True: x.append(bytearray(b\"x\" * (4 << 20)))'"
    with group(200 << 20) as place:
        done, said = act(
            runner, f"exec {program}", "unit, tests", "--no-plot --cgroup require", preexec_fn=place.enter
        )
    assert done.returncode == -signal.SIGKILL
    assert said.startswith("::error title=otel-memwatch unit  tests::")
    assert "OOM killer" in said
    assert "it had needed 1" in said
    assert said.count("\n") == 1


def test_gitlabs_template_leaves_its_reports(tmp_path):
    job = yaml.safe_load((DEPLOY / "gitlab" / "memwatch.gitlab-ci.yml").read_text())[".memwatch"]
    lines = "\n".join([*job["script"], "code=$?", *job["after_script"], "exit $code"])
    lines = lines.replace("/tmp/otel-memwatch/bin/otel-memwatch", f"{PYTHON} -m otel_memwatch")
    variables = {
        "CI_JOB_ID": "7",
        "MEMWATCH_COMMAND": "exit 3",
        "MEMWATCH_OPTIONS": "--no-plot",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ["sh", "-c", lines], cwd=tmp_path, env={**os.environ, **variables}, timeout=60, capture_output=True
    )
    assert done.returncode == 3
    assert (tmp_path / job["artifacts"]["reports"]["metrics"]).read_text().endswith("# EOF\n")
    for path in job["artifacts"]["paths"]:
        assert (tmp_path / path).exists()


SRUN = r"""#!/bin/bash
for task in 0 1; do
    SLURM_PROCID=$task "$@" &
    tasks+=($!)
done
trap 'kill -TERM "${tasks[@]}"' TERM
for task in "${tasks[@]}"; do
    wait "$task"
    code=$?
    while kill -0 "$task" 2>/dev/null; do wait "$task"; code=$?; done
    ((code > largest)) && largest=$code
done
exit "${largest:-0}"
"""


@pytest.fixture
def slurm(tmp_path):
    """An srun that starts two tasks as Slurm would, and hands signals on."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "srun").write_text(SRUN)
    (tools / "otel-memwatch").write_text(f'#!/bin/sh\nexec "{PYTHON}" -m otel_memwatch "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    return {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "train",
        "SLURM_SUBMIT_DIR": str(tmp_path), "PYTHONPATH": str(ROOT),
    }  # fmt: skip


def test_every_task_of_a_slurm_job_has_its_record(slurm, tmp_path):
    job = DEPLOY / "slurm" / "job.sbatch"
    done = subprocess.run(["bash", str(job), "sh", "-c", "echo task $SLURM_PROCID"], env=slurm, timeout=60, check=True,
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.count("task") == 2
    runs = sorted(path.name for path in (tmp_path / "memwatch-runs").iterdir())
    assert runs == ["42-0-0", "42-0-1"]
    info = json.loads((tmp_path / "memwatch-runs" / "42-0-1" / "run.json").read_text())
    assert info["resource"]["memwatch.slurm.job.id"] == "42"
    assert info["resource"]["service.name"] == "train"
    epilog = subprocess.run(["sh", str(DEPLOY / "slurm" / "task_epilog.sh")], env={**slurm, "SLURM_PROCID": "1"}, timeout=60,
                            check=True, capture_output=True, text=True)  # fmt: skip
    assert "  peak memory   " in epilog.stdout


def test_slurms_warning_ends_the_tasks_and_completes_their_records(slurm, tmp_path):
    job = DEPLOY / "slurm" / "job.sbatch"
    script = subprocess.Popen(
        ["bash", str(job), "sleep", "60"], env=slurm, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    runs = tmp_path / "memwatch-runs"
    try:
        until = time.monotonic() + 30
        while len(list(runs.glob("*/samples.jsonl"))) < 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        script.terminate()
        assert script.wait(30) != 0
    finally:
        script.kill()
    for path in runs.iterdir():
        info = json.loads((path / "run.json").read_text())
        assert (info["state"], info["exit"]["signal"]) == ("finished", signal.SIGTERM)


def test_slurms_prolog_says_where_to_push_unless_the_user_has(slurm):
    prolog = ["sh", str(DEPLOY / "slurm" / "task_prolog.sh")]
    said = subprocess.run(prolog, env=slurm, timeout=20, check=True, capture_output=True, text=True).stdout
    assert (
        said == "export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318\nexport OTEL_SERVICE_NAME=train\n"
    )
    given = {**slurm, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SERVICE_NAME": "mine"}
    assert subprocess.run(prolog, env=given, timeout=20, check=True, capture_output=True).stdout == b""


STATIC = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) { char *p = malloc(50 << 20); memset(p, 1, 50 << 20); usleep(300000); return p[123] + 6; }
"""


@pytest.mark.thorough
def test_the_bundle_runs_in_an_image_that_has_nothing(tmp_path):
    """No Python, no shell, no C library: a directory with the tool and a static program."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root for chroot")
    image = tmp_path / "image"
    for name in ("proc", "tmp", "runs"):
        (image / name).mkdir(parents=True)
    made = subprocess.run([PYTHON, str(DEPLOY / "container" / "bundle.py"), str(image / "otel-memwatch")],
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert made.returncode == 0, made.stderr
    source = tmp_path / "target.c"
    source.write_text(STATIC)
    subprocess.run(["cc", "-static", "-o", str(image / "target"), str(source)], check=True, timeout=60)
    tool = "/otel-memwatch/bin/otel-memwatch"
    script = 'mount -t proc proc "$1/proc" && exec chroot "$1" '
    wrap = f"{tool} wrap --no-plot --prometheus 0 --out /runs/a -- /target"
    environ = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["unshare", "-m", "sh", "-c", script + wrap, "sh", str(image)], env=environ, timeout=60,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 7, done.stderr
    peak = json.loads((image / "runs" / "a" / "run.json").read_text())["peaks"]["tree"]["bytes"]
    assert peak > 50 << 20
    assert "metrics for Prometheus" in done.stderr
    plot = f"{tool} plot /runs/a -o /runs/a.png"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script + plot, "sh", str(image)], env={**environ, "HOME": "/tmp"},
                          timeout=60, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (image / "runs" / "a.png").read_bytes().startswith(b"\x89PNG")


def test_series_of_a_textfile_are_the_runs_own(tmp_path):
    """Scraped as node_exporter would serve it: its job and instance must not stand for the run's."""
    textfile = tmp_path / "metrics.prom"
    subprocess.run(
        [PYTHON, "-m", "otel_memwatch", "wrap", "--no-plot", "--quiet", f"--out={tmp_path / 'run'}", f"--textfile={textfile}",
         "--", "sleep", "0.3"],
        env={**os.environ, "OTEL_SERVICE_NAME": "train"}, check=True, timeout=60,
    )  # fmt: skip
    port = free_port()
    served = lambda *given: http.server.SimpleHTTPRequestHandler(*given, directory=str(tmp_path))  # noqa: E731
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (node,) = (
        one for one in yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text())["scrape_configs"]
        if one["job_name"] == "node"
    )  # fmt: skip
    node |= {
        "metrics_path": "/metrics.prom",
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
        "scrape_interval": "1s",
    }
    prometheus = Prometheus(tmp_path / "prometheus", config={"scrape_configs": [node]})
    try:
        (series,) = prometheus.wait(lambda: prometheus.query("memwatch_run_active"))
        assert series["metric"]["job"] == "train"
        assert series["metric"]["instance"].startswith("run-")
        (info,) = prometheus.query('target_info{telemetry_distro_name="otel-memwatch"}')
        assert info["metric"]["instance"] == series["metric"]["instance"]
    finally:
        prometheus.close()
        server.shutdown()
        server.server_close()
