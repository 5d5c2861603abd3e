"""Trackers: the figures and the page of a run arrive in the run that the environment names, and nothing of that harms the job.

The clients are the real ones where they are installed (sh tests/run.sh all). How `wrap` waits is tested with one of our own.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wrapped import MIB, PROGRAM, Wrapped, environment, wrap

MARKING = """
from otel_memwatch import operation
for number in range(3):
    with operation(f"step {number}"):
        held = bytearray((50 + 50 * number) << 20)
        del held
"""


def installed(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed: sh tests/run.sh all")


pytestmark = pytest.mark.filterwarnings("ignore")  # what the clients say of their own libraries is theirs


def record(place: Path, *options: str, **variables: str) -> Wrapped:
    return wrap(
        [sys.executable, "-c", MARKING],
        "--name",
        "train",
        *options,
        out=place / "run",
        cwd=place,
        **variables,
    )


def export(place: Path, tracker: str, *options: str, **variables: str) -> str:
    done = subprocess.run(
        [*PROGRAM, "export", "run", "--to", tracker, *options],
        cwd=place, env=environment(**variables), capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1]


def check(scalars: dict[str, float], done: Wrapped) -> None:
    assert len(scalars) <= 40
    tree = done.peak("tree")
    assert scalars["memwatch/memory_bytes"] == pytest.approx(tree["bytes"], rel=1e-6)
    assert scalars["memwatch/operation/step 2_bytes"] > 140 * MIB
    assert scalars["memwatch/operation/step 0_bytes"] < scalars["memwatch/operation/step 1_bytes"]


@installed("mlflow")
def test_mlflow_has_them_in_the_run_that_the_environment_names(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(tracking_uri=store)
    experiment = client.create_experiment("tests", artifact_location=str(tmp_path / "artifacts"))
    identity = client.create_run(experiment).info.run_id
    done = record(tmp_path, MLFLOW_RUN_ID=identity)
    # The run remembers which it was.
    assert export(tmp_path, "mlflow", MLFLOW_TRACKING_URI=store) == f"mlflow: run {identity}"
    found = client.get_run(identity)
    check(found.data.metrics, done)
    assert found.data.tags["memwatch.ended"] == "exit code 0"
    (page,) = client.list_artifacts(identity, "memwatch")
    assert page.path == "memwatch/report.html"
    assert page.file_size == (tmp_path / "run" / "report.html").stat().st_size


def log_records(data: bytes) -> Iterator[bytes]:
    """The records of a W&B file: LevelDB's log format, blocks of 32 KiB, behind a head of 7 bytes."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = 0x8000 - place % 0x8000
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


@installed("wandb")
def test_wandb_has_them_offline(tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2

    done = record(tmp_path)
    told = export(
        tmp_path,
        "wandb",
        WANDB_MODE="offline",
        WANDB_RUN_ID="abc123",
        WANDB_PROJECT="project",
        HOME=str(tmp_path),
    )
    assert told == "wandb: run abc123"
    (file,) = (tmp_path / "wandb").glob("offline-run-*-abc123/run-abc123.wandb")
    summary: dict[str, float] = {}
    artifacts = []
    for data in log_records(file.read_bytes()):
        line = wandb_internal_pb2.Record()
        line.ParseFromString(data)
        for item in line.summary.update:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        if line.HasField("artifact") or line.HasField("request"):
            artifacts.append(str(line))
    check(
        {name: value for name, value in summary.items() if isinstance(value, int | float) and name[0] != "_"},
        done,
    )
    assert "report.html" in "".join(artifacts)


@installed("tensorboard")
def test_tensorboard_has_them_beside_the_events_of_the_program(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = record(tmp_path)
    assert export(tmp_path, "tensorboard", TENSORBOARD_LOG_DIR="logs/train") == "tensorboard: logs/train"
    events = EventAccumulator(str(tmp_path / "logs" / "train"))
    events.Reload()
    tags = events.Tags()
    scalars = {
        name: events.Tensors(name)[0].tensor_proto.float_val[0]
        for name in tags["tensors"]
        if name != "memwatch/summary"
    } or {name: events.Scalars(name)[0].value for name in tags["scalars"]}
    check(scalars, done)
    text = events.Tensors("memwatch/summary")[0].tensor_proto.string_val[0].decode()
    assert "memory" in text
    assert (tmp_path / "logs" / "train" / "memwatch-report.html").stat().st_size > 10_000


@installed("trackio")
def test_trackio_has_them_in_the_project(tmp_path: Path) -> None:
    done = record(tmp_path)
    told = export(
        tmp_path,
        "trackio",
        TRACKIO_PROJECT="project",
        TRACKIO_DIR=str(tmp_path / "trackio"),
        HOME=str(tmp_path),
    )
    assert told == "trackio: project/train"
    with sqlite3.connect(tmp_path / "trackio" / "project.db") as base:
        rows = base.execute("SELECT run_name, metrics FROM metrics").fetchall()
    assert {name for name, _ in rows} == {"train"}
    metrics = {key: value for _, text in rows for key, value in json.loads(text).items()}
    check({name: value for name, value in metrics.items() if isinstance(value, int | float)}, done)


CLIENT = """
import os, time
from pathlib import Path
here = Path(os.environ["HERE"])
(here / "begun").touch()
what = os.environ["WHAT"]
if what == "dies":
    os._exit(7)
while what == "slow" and not (here / "go").exists():
    time.sleep(0.02)
"""
TRACKING = """
import os
from pathlib import Path
class MlflowClient:
    def log_batch(self, run, metrics, tags):
        if os.environ["WHAT"] == "refuses":
            raise ConnectionError("no such server")
        print("words of a client")
        self.metrics = metrics
    def log_artifact(self, run, path, folder):
        text = "".join(f"{metric}\\n" for metric in self.metrics)
        part = Path(os.environ["HERE"], "part")
        part.write_text(f"{run} {Path(path).name}\\n{text}")
        part.rename(part.with_name("sent"))
"""
ENTITIES = """
def Metric(name, value, when, step):
    return name
def RunTag(name, value):
    return name
"""


@pytest.fixture
def client(tmp_path: Path) -> dict[str, str]:
    """Variables under which a client of MLflow's name is found that does what WHAT says."""
    package = tmp_path / "clients" / "mlflow"
    (package / "tracking").mkdir(parents=True)
    (package / "__init__.py").write_text(CLIENT)
    (package / "tracking" / "__init__.py").write_text(TRACKING)
    (package / "entities.py").write_text(ENTITIES)
    return {"PYTHONPATH": str(package.parent), "HERE": str(tmp_path), "MLFLOW_RUN_ID": "r1", "WHAT": "works"}


def run(place: Path, client: dict[str, str], what: str) -> Wrapped:
    return wrap(
        ["sh", "-c", "exit 5"], "--tracker", "auto", out=place / "run", cwd=place, **{**client, "WHAT": what}
    )


def appears(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)
    return path.read_text()


def test_the_end_of_a_job_sends_them(tmp_path: Path, client: dict[str, str]) -> None:
    done = run(tmp_path, client, "works")
    assert done.code == 5
    head, *names = appears(tmp_path / "sent").splitlines()
    assert head == "r1 report.html"
    assert "memwatch/memory_bytes" in names
    assert "words of a client" not in done.out + done.err


def test_a_tracker_that_takes_its_time_is_not_waited_for(tmp_path: Path, client: dict[str, str]) -> None:
    done = run(tmp_path, client, "slow")
    # The client still waits for a word of ours, and the job has ended.
    assert done.code == 5
    assert not (tmp_path / "sent").exists()
    assert (
        f"mlflow has not answered yet: sending goes on for a minute; to repeat it: otel-memwatch export {tmp_path}/run --to mlflow"
        in done.err
    )
    appears(tmp_path / "begun")
    (tmp_path / "go").touch()
    assert appears(tmp_path / "sent").startswith("r1 ")


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("refuses", "nothing was sent to mlflow: mlflow rejected the figures"),
        ("dies", "its process has died"),
    ],
)
def test_a_tracker_that_fails_is_one_line(
    tmp_path: Path, client: dict[str, str], what: str, line: str
) -> None:
    done = run(tmp_path, client, what)
    assert done.code == 5
    if "has not answered yet" not in done.err:  # on a busy machine it may not even have begun
        assert [line in told for told in done.err.splitlines()].count(True) == 1
    assert "Traceback" not in done.err


def test_no_tracker_is_named(tmp_path: Path, client: dict[str, str]) -> None:
    done = wrap(["true"], "--quiet", "--tracker", "auto", out=tmp_path / "run", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "")
    for arguments, expected in (
        (["export", "run", "--to", "trackio"], "--into, or TRACKIO_PROJECT" if importlib.util.find_spec("trackio") else "pip install trackio"),
        (["export", "run", "--to", "mlflow", "-o", "file"], "A tracker takes no file"),
        (["export", "run", "--to", "csv", "--into", "x"], "--into is for trackers"),
        (["wrap", "--tracker", "nonsense", "--", "true"], "nonsense"),
    ):  # fmt: skip
        refused = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert refused.returncode == 2, refused.stderr
        assert expected in refused.stderr
