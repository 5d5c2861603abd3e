"""Importing a shim imports nothing heavy, starts nothing, and changes nothing."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import otel_memwatch.compat
from tests.support.programs import environment

SHIMS = ("nncf", "qefficient", "ipython", "fastai", "callbacks")
SHARED = {"current_memory", "own_process", "shared_recording"}
"""What several shims are made with."""
HEAVY = {
    "IPython", "click", "matplotlib", "numpy", "opentelemetry", "pandas", "psutil", "pynvml", "torch", "keras", "fastai",
    "transformers", "lightning", "tabulate",
}  # fmt: skip


@pytest.mark.parametrize("shim", SHIMS)
def test_importing_a_shim_and_its_names_is_light_and_harmless(shim: str, tmp_path: Path) -> None:
    code = f"""
import atexit, builtins, json, os, sys, threading, time
hooks = (sys.excepthook, sys.displayhook, builtins.print, builtins.__import__, time.sleep, os.environ.copy(), len(os.listdir("/proc/self/fd")))
module = __import__("otel_memwatch.compat.{shim}", fromlist=["*"])
for name in module.__all__:
    getattr(module, name)
assert hooks == (sys.excepthook, sys.displayhook, builtins.print, builtins.__import__, time.sleep, os.environ.copy(), len(os.listdir("/proc/self/fd")))
assert threading.active_count() == 1 and os.listdir(".") == []
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) & HEAVY == set()


@pytest.mark.parametrize("shim", SHIMS)
def test_every_shim_says_what_is_the_same_what_differs_and_what_is_missing(shim: str) -> None:
    text = importlib.import_module(f"otel_memwatch.compat.{shim}").__doc__
    assert text is not None
    places = [text.index(heading) for heading in ("Works the same:", "Differs, and why:", "Not supported:")]
    assert places == sorted(places)


@pytest.mark.parametrize("shim", SHIMS)
def test_a_name_that_is_not_there_is_an_attribute_error(shim: str) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = importlib.import_module(f"otel_memwatch.compat.{shim}").no_such_name


def test_all_shims_are_tested_here() -> None:
    found = {module.name for module in pkgutil.iter_modules(otel_memwatch.compat.__path__)}
    assert found - SHARED == set(SHIMS)


def test_public_names_are_all_explained() -> None:
    modules = list(Path(otel_memwatch.compat.__path__[0]).rglob("*.py"))
    assert modules
    for path in modules:
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_facts_that_fastai_named_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    from otel_memwatch.compat import fastai

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (fastai.use_gpu, fastai.IS_IN_IPYTHON, fastai.IS_IN_COLAB) == (False, False, False)
