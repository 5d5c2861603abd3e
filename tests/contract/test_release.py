"""What makes a release: workflows are linted, their scripts run, the version stands in one place, the same commit gives the same bytes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from otel_memwatch import __version__
from tests.support.mutations import LONG
from tests.support.peers import needed

ROOT = Path(__file__).parents[2]
SOURCES = Path(os.environ.get("OTEL_MEMWATCH_TEST_SOURCES") or ROOT)
"""The tests run beside the sources, not in them: `tests/run.sh` says where these are."""
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
RELEASE = ROOT / "deploy/release"


def run(*command: object, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=550, **more
    )


def test_actionlint_has_nothing_to_say(tmp_path):
    done = run(needed("actionlint"), "-no-color", *WORKFLOWS)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    broken = tmp_path / "broken.yml"
    broken.write_text(
        WORKFLOWS[0].read_text().replace("${{ github.", "${{ nothing.").replace("runs-on", "runs-at")
    )
    assert run(needed("actionlint"), "-no-color", broken).stdout


@pytest.mark.parametrize(
    ("schema", "path"),
    [*(("github-workflows", path) for path in WORKFLOWS), ("dependabot", GITHUB / "dependabot.yml")],
    ids=lambda value: getattr(value, "name", value),
)
def test_published_schemas(schema, path):
    done = run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", path)
    assert done.returncode == 0, done.stdout


def scripts():
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            for step in job["steps"]:
                if "run" in step:
                    yield pytest.param(
                        step["run"], id=f"{path.stem}-{name}-{step.get('name', step.get('id', 'run'))}"
                    )


@pytest.mark.parametrize("script", list(scripts()))
def test_scripts_of_workflows_are_sound(script):
    """For shellcheck; the commands that they call exist."""
    filled = re.sub(r"\$\{\{.*?\}\}", "value", script)
    done = run(needed("shellcheck"), "-s", "bash", "-e", "SC2086", "-", input=filled)
    assert done.returncode == 0, done.stdout
    for file in re.findall(r"(?<![\w/])((?:deploy|tests|\.ci)/[\w./-]+)", filled):
        assert (SOURCES / file).exists() or (ROOT / file).exists(), file


def test_nothing_is_published_without_a_tag_and_nothing_with_a_password():
    jobs = yaml.safe_load((GITHUB / "workflows/release.yml").read_text())["jobs"]
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    text = (GITHUB / "workflows/release.yml").read_text()
    assert "secrets." not in text
    assert "provenance: mode=max" in text
    assert "steps.build.outputs.digest" in text


def test_issue_forms_can_be_read():
    forms = list((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
    assert forms
    for path in forms:
        form = yaml.safe_load(path.read_text())
        assert path.name == "config.yml" or {"name", "description", "body"} <= set(form), path


# -- the version


def copied(folder: Path) -> Path:
    """What `cut.py` changes, as a repository."""
    for name in ("deploy", "changes", "CHANGELOG.md", "pyproject.toml"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    (folder / "otel_memwatch").mkdir()
    (folder / "otel_memwatch/_version.py").write_text(f'__version__ = "{__version__}"\n')
    run("git", "init", "-q", folder, check=True)
    run("git", "-C", folder, "add", "-A", check=True)
    return folder / "deploy/release/cut.py"


def test_a_release_is_cut_and_its_tag_is_checked(tmp_path):
    cut = copied(tmp_path)
    assert run(sys.executable, cut, "--check", "v9.8.7").returncode == 1
    assert run(sys.executable, cut, "9.8").returncode == 1
    assert run(sys.executable, cut, "9.8.7").returncode == 0
    assert run(sys.executable, cut, "--check", "refs/tags/v9.8.7").returncode == 0
    assert "A manual in `docs/`" in run(sys.executable, cut, "--notes").stdout
    assert re.search(
        r"^## 9\.8\.7 \(\d{4}-\d\d-\d\d\)$", (tmp_path / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert run(sys.executable, cut, "9.8.8").returncode == 1  # nothing is unreleased any more
    assert "otel-memwatch:9.8.7" in (tmp_path / "deploy/container/Dockerfile").read_text()


def test_the_version_stands_in_one_place():
    """Elsewhere it is the tag of the image, which `cut.py` changes with it."""
    for path in (ROOT / "deploy").rglob("*"):
        if path.is_file():
            assert set(re.findall(r"otel-memwatch:(\d[\w.]*)", path.read_text())) <= {__version__}, path
    assert f'"{__version__}"' not in (ROOT / "pyproject.toml").read_text()


def test_cibuildwheel_builds_one_wheel_a_processor():
    configured = (ROOT / "pyproject.toml").read_text()
    assert 'build = ["cp310-manylinux_x86_64", "cp310-manylinux_aarch64"]' in configured
    assert '"cp310"' in (SOURCES / "setup.py").read_text()


@pytest.mark.skipif(not LONG, reason="it builds six times: MEMWATCH_LONG=1")
@pytest.mark.timeout(600)
def test_the_same_commit_gives_the_same_bytes_and_each_wheel_works(tmp_path):
    done = run(sys.executable, SOURCES / "deploy/release/build.py", tmp_path / "dist", "--twice")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same bytes" in done.stdout
    wheels = sorted((tmp_path / "dist").glob("*.whl"))
    assert [wheel.name.split("-", 2)[2].split("_")[0] for wheel in wheels] == [
        "cp310-abi3-linux",
        "py3-none-any.whl",
    ]
    tried = run("sh", RELEASE / "try_wheels.sh", *wheels)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert tried.stdout.count("tried, operations") == 2
