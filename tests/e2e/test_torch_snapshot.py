"""Snapshots of PyTorch's allocator, written by programs with a stand-in for PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.wrapped import call, environment

ROOT = Path(__file__).parents[2]
TORCH = """
import sys
from tests.support.standin_torch import Torch
sys.modules[__name__] = Torch(devices=2, initialized=False)
"""
PROGRAM = """
import importlib.util, os, sys, threading
assert importlib.util.find_spec("torch") is not None
import torch
print([os.path.basename(entry) for entry in sys.path if "torch_snapshot" in entry])
torch.cuda.init()
device = torch.devices[0]
device.take(3 << 30)
directory = os.environ["OTEL_MEMWATCH_RUN_DIR"]
while not [name for name in os.listdir(directory) if name.startswith("torch-peak")]:
    pass
device.take(4 << 30)
try:
    device.take(100 << 30)
except RuntimeError as error:
    print(error)
print(threading.active_count())
"""
LAZY_PACKAGE = """
torch.lazy = {"_inductor": "inductor"}
sys.modules[__name__] = torch
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def _wrap(folder: Path, *command: str, **variables: str) -> Any:
    words = ("wrap", "--torch-snapshot", "--out", "run", "--", sys.executable, *command)
    return call(*words, cwd=folder, **{"PYTHONPATH": str(ROOT), "RANK": "3", **variables})


def _listed(folder: Path) -> Any:
    return json.loads(call("report", "run", "--json", cwd=folder).stdout)["torch_snapshots"]


def test_a_new_peak_and_a_failed_allocation_are_written(folder: Path) -> None:
    done = _wrap(folder, "program.py")
    assert (done.returncode, done.stdout) == (0, "[]\nCUDA out of memory.\n1\n"), done.stderr
    oom, peak = _listed(folder)
    assert (oom["kind"], oom["rank"], oom["device"], oom["requested_bytes"]) == ("oom", 3, 0, 100 << 30)
    assert (peak["kind"], peak["rank"], peak["reserved_bytes"]) == ("peak", 3, 7 << 30)
    assert oom["pid"] == peak["pid"]
    assert (folder / peak["path"]).read_bytes() == b"snapshot of %d bytes" % (7 << 30)
    assert (folder / peak["path"]).stat().st_mode & 0o777 == 0o600
    assert "allocation of 100.00 GiB failed on GPU 0 (rank 3): " in done.stderr, done.stderr
    report = call("report", "run", cwd=folder).stdout
    assert os.path.basename(peak["path"]) in report
    assert call("runs", "prune", ".", "--keep", "0", cwd=folder).returncode == 0
    assert not list((folder / "run").glob("torch-*"))


def test_a_snapshot_imports_nothing_into_the_program(folder: Path) -> None:
    """An import in the thread that writes snapshots can fail one of the program's at the same time."""
    (folder / "torch.py").write_text(TORCH.replace("sys.modules[__name__] =", "torch =") + LAZY_PACKAGE)
    (folder / "inductor.py").write_text("")
    asked = "import sys\nprint('inductor' in sys.modules)\nprint(torch._inductor.__name__)\n"
    (folder / "program.py").write_text(PROGRAM + asked)
    done = _wrap(folder, "program.py")
    assert done.stdout.splitlines()[-2:] == ["False", "inductor"], done.stdout + done.stderr
    assert {one["kind"] for one in _listed(folder)} == {"oom", "peak"}


def test_a_program_without_cuda_is_left_alone(folder: Path) -> None:
    done = _wrap(folder, "-c", "import torch; print(torch.calls)")
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert _listed(folder) == []
    assert "None: no process" in call("report", "run", cwd=folder).stdout


def test_another_sitecustomize_is_still_loaded(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import sys; sys.flags_of_the_user = 7")
    done = _wrap(folder, "-c", "import sys; print(sys.flags_of_the_user)", PYTHONPATH=f"{folder}:{ROOT}")
    assert done.stdout == "7\n", done.stderr


def test_a_failing_sitecustomize_is_reported_as_without_us(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import a_module_that_is_missing")
    done = _wrap(folder, "-c", "print(5)", PYTHONPATH=f"{folder}:{ROOT}")
    assert done.stdout == "5\n"
    assert "a_module_that_is_missing" in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        "torch.cuda.memory._dump_snapshot = None",
        "torch.cuda.memory._record_memory_history = None",
        "del torch._C._cuda_attach_out_of_memory_observer",
        "torch.cuda.memory_stats_as_nested_dict = lambda index: {'reserved_bytes': 5}",
        "del torch.cuda._lazy_call",
        # The monitor may write a file in the meantime, so the directory is moved away first.
        "import shutil; shutil.rmtree(shutil.move(os.environ['OTEL_MEMWATCH_RUN_DIR'], 'moved'), ignore_errors=True)",
    ],
)
def test_no_error_reaches_the_program(folder: Path, change: str) -> None:
    program = f"""
import os, torch
{change}
torch.cuda.init()
torch.devices[0].take(3 << 30)
try:
    torch.devices[0].take(100 << 30)
except RuntimeError as error:
    print(error)
"""
    done = _wrap(folder, "-c", program)
    assert (done.returncode, done.stdout) == (0, "CUDA out of memory.\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_watch_writes_snapshots_of_this_program(folder: Path) -> None:
    program = (
        "import sys\nfrom otel_memwatch import watch\nwith watch('run', torch_snapshot=True):\n    import torch\n"
        "    torch.cuda.init()\n    torch.devices[0].take(3 << 30)\n    import os, time\n"
        "    while not [name for name in os.listdir('run') if name.startswith('torch-peak')]: time.sleep(0.01)\n"
    )
    (folder / "watching.py").write_text(program)
    variables = environment(PYTHONPATH=str(ROOT))
    subprocess.run([sys.executable, "watching.py"], cwd=folder, env=variables, check=True)
    assert [one["reserved_bytes"] for one in _listed(folder)] == [3 << 30]


def test_without_the_option_nothing_changes(folder: Path) -> None:
    words = (
        "wrap",
        "--out",
        "run",
        "--",
        sys.executable,
        "-c",
        "import os; print(os.environ.get('PYTHONPATH'))",
    )
    done = call(*words, cwd=folder, PYTHONPATH=str(ROOT))
    assert done.stdout == f"{ROOT}\n"
