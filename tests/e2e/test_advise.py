"""`advise` as a user calls it: for each target, into a manifest, and tried."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from tests.support import recorded
from tests.support.control_group import memory_parent
from tests.support.wrapped import call

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = """\
# nightly training
apiVersion: batch/v1
kind: Job
metadata:
  name: train   # as in the dashboard
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        # the sidecar asks for little
        - name: sidecar
          image: "busybox:1"
        - name: train
          image: 'trainer:2'
          resources:
            limits:
              memory: 8Gi   # a guess of last year
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Six runs of a job that needed 100 to 101 MiB, exactly."""
    for number in range(6):
        path = recorded.record(
            tmp_path / f"memwatch-runs/{number}", seconds=2.0, peaks={"tree": recorded.peak(100 + number / 5)}
        )
        info: dict[str, Any] = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(info | {"name": "train"}))
    return tmp_path


def test_a_person_reads_what_to_ask_for_and_how_surely(place: Path) -> None:
    done = call("advise", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    first = done.stdout.splitlines()[0]
    assert first.startswith("train: request 1")
    assert "6 runs; 1 in 1000 would need more" in first
    done = call("advise", "train", "--for", "json", "--compare", cwd=place)
    assert done.stderr.startswith("otel-memwatch: --compare is ignored.")
    (advice,) = json.loads(done.stdout)["advice"]
    assert 101 << 20 < advice["memory"]["target"] < 112 << 20
    more = json.loads(call("advise", "memwatch-runs", "--for", "json", "--odds", "1/10", cwd=place).stdout)[
        "advice"
    ][0]
    assert more["memory"]["target"] < advice["memory"]["target"]


def test_a_manifest_keeps_its_comments_and_is_valid(place: Path) -> None:
    manifest = place / "job.yaml"
    manifest.write_text(MANIFEST)
    manifest.chmod(0o640)
    asked = call("advise", "train", "--apply", manifest, "--container", "train", "--dry-run", cwd=place)
    assert asked.returncode == 0, asked.stderr
    assert "limits.memory of train: 8Gi -> " in asked.stderr
    assert manifest.read_text() == MANIFEST
    done = call("advise", "train", "--apply", manifest, "--container", "train", cwd=place)
    assert done.stderr == asked.stderr
    text = manifest.read_text()
    for kept in (
        "# nightly training",
        "# as in the dashboard",
        "# the sidecar asks for little",
        '"busybox:1"',
        "'trainer:2'",
    ):
        assert kept in text
    assert manifest.stat().st_mode & 0o777 == 0o640
    job, settings = yaml.safe_load_all(text)
    assert settings == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    kubernetes_validate.validate(job, "1.31", strict=True)
    sidecar, train = job["spec"]["template"]["spec"]["containers"]
    assert "resources" not in sidecar
    assert train["resources"]["limits"]["memory"] == train["resources"]["requests"]["memory"]
    assert train["resources"]["limits"]["memory"].endswith("Mi")
    again = call("advise", "train", "--apply", manifest, "--container", "train", cwd=place)
    assert "asks for that already" in again.stderr
    assert manifest.read_text() == text


def test_a_manifest_is_kubectl_s(place: Path) -> None:
    """Without a cluster its client reads what it is to change, by the types of Kubernetes."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    manifest = place / "job.yaml"
    manifest.write_text(MANIFEST.split("---", maxsplit=1)[0])
    assert call("advise", "train", "--apply", manifest, "--container", "train", cwd=place).returncode == 0

    def read() -> subprocess.CompletedProcess[str]:
        words = [
            "set",
            "resources",
            "--local",
            "--dry-run=client",
            "-c",
            "train",
            "--limits=ephemeral-storage=1Gi",
        ]
        argv = ["kubectl", *words, "-f", str(manifest), "-o", "json"]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100)

    told = json.loads(read().stdout)["spec"]["template"]["spec"]["containers"][1]["resources"]
    assert told["limits"]["memory"] == told["requests"]["memory"]
    manifest.write_text(manifest.read_text().replace("Mi", "Qi"))
    assert "quantities must match" in read().stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--apply", "job.yaml"], 2, "2 containers that may be meant: sidecar, train"),
        (["--apply", "job.yaml", "--container", "x"], 2, "holds no container 'x'"),
        (["--apply", "text.yaml"], 1, "is not YAML"),
        (["--apply", "empty.yaml"], 2, "holds no container"),
        (["--apply", "absent.yaml"], 1, "cannot be read"),
        (["--odds", "7"], 2, "are no odds"),
        (["--picture", "trade.png"], 2, "--picture needs --trade"),
        (["--trade", "--picture", "trade.txt"], 2, "--picture needs --trade and a FILE in a known format"),
        (["--by", "colour"], 2, "there is no field 'colour'"),
        (["--where", "state=broken"], 2, "There is no run to learn from"),
        (["absent"], 2, "neither a path nor the name of a run"),
        (["text.yaml"], 2, "None of these runs can be read"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], code: int, said: str, place: Path) -> None:
    (place / "job.yaml").write_text(MANIFEST)
    (place / "text.yaml").write_text("a: [")
    (place / "empty.yaml").write_text("")
    done = call("advise", *words, cwd=place)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert said in done.stderr


def test_options_of_docker_are_docker_s(place: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    options = call("advise", "train", "--for", "docker", cwd=place).stdout.splitlines()[-1]

    def refused(*given: str) -> str:
        """Of an image that cannot be: options are parsed before it is looked for."""
        done = subprocess.run(
            ["docker", "run", *given, "//"], capture_output=True, text=True, check=False, timeout=60
        )
        return done.stderr

    assert "invalid reference format" in refused(*shlex.split(options))
    assert "invalid argument" in refused("--memory=5zz")


@pytest.mark.quiet
def test_limits_are_tried_until_the_smallest_one_with_full_speed_is_known(tmp_path: Path) -> None:
    memory_parent()
    script = "x = bytearray(60 << 20)"
    done = call("wrap", "--no-plot", "--name", "filler", "--", "python3", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tried = call("advise", "filler", "--trade", "--picture", "trade.svg", cwd=tmp_path)
    assert tried.returncode == 0, tried.stderr
    assert re.search(r"\n +none .* full speed\n", tried.stdout), tried.stdout
    found = re.search(r"full speed from (\d+) MiB", tried.stdout)
    assert found, tried.stdout
    assert 60 <= int(found[1]) <= 110
    assert len(os.listdir(tmp_path / "memwatch-runs")) == 1
    assert (tmp_path / "trade.svg").read_text().startswith("<?xml")
    assert f"full speed was measured: {found[1]} MiB" in call("advise", "filler", cwd=tmp_path).stdout


def test_an_advice_is_tried_with_the_limit_and_a_little_less(tmp_path: Path) -> None:
    """A job that needs what it needs: under the limit it passes, and the run's summary says so much beforehand."""
    memory_parent()
    script = "x = bytearray(120 << 20)"
    done = call("wrap", "--no-plot", "--name", "filler", "--", "python3", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"advice +request 1", done.stderr)
    for _ in range(3):
        call("wrap", "--quiet", "--no-plot", "--name", "filler", "--", "python3", "-c", script, cwd=tmp_path)
    tried = call("advise", "filler", "--verify", cwd=tmp_path)
    assert tried.returncode == 0, tried.stderr
    advised, less = tried.stdout.splitlines()[-2:]
    assert "(as advised): passes" in advised
    assert "(5 % less): " in less
    assert len(os.listdir(tmp_path / "memwatch-runs")) == 4
