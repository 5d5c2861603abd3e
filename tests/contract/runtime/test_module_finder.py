"""Our finder of modules gives what Python's gives, or leaves the module to it."""

from __future__ import annotations

import _thread
import importlib
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

from otel_memwatch.runtime import module_finder
from otel_memwatch.runtime.module_store import ModuleStore, write_store

CASES = {
    "otel_memwatch.run.peaks": False,
    "otel_memwatch.reports": True,
    "otel_memwatch.monitor.run": True,
    "threading": False,
    "json": True,
    "json.decoder": False,
}
"""Modules, and whether each is a package."""


def finder(store: Path = Path("/nowhere")) -> module_finder.CachedModules:
    """Return a finder with the stored modules of a file."""
    return module_finder.CachedModules(ModuleStore(str(store), ("key",)))


def place(name: str) -> list[str] | None:
    """Folders in which Python looks for a module."""
    if "." not in name:
        return None
    return list(importlib.import_module(name.rpartition(".")[0]).__path__)


@pytest.mark.parametrize("name", CASES)
def test_both_finders_agree(name: str) -> None:
    theirs = PathFinder.find_spec(name, place(name))
    assert theirs is not None
    assert theirs.origin is not None
    if name not in sys.stdlib_module_names:
        py_compile.compile(theirs.origin, doraise=True)
    elif not os.path.exists(importlib.util.cache_from_source(theirs.origin)):
        pytest.skip("the standard library has no bytecode here")
    ours = finder().find_spec(name, place(name))
    assert ours is not None
    assert (ours.origin, ours.cached, ours.has_location) == (theirs.origin, theirs.cached, True)
    assert ours.submodule_search_locations == theirs.submodule_search_locations
    assert ours.parent == theirs.parent
    assert (ours.submodule_search_locations is not None) == CASES[name]
    assert isinstance(ours.loader, SourceFileLoader)
    assert isinstance(theirs.loader, SourceFileLoader)
    again = ours.loader.get_code(name), ours.loader.get_code(name)  # what was read, then as Python reads it
    assert again == (theirs.loader.get_code(name),) * 2
    module = importlib.util.module_from_spec(ours)
    assert module.__file__ == theirs.origin
    assert list(getattr(module, "__path__", ())) == (theirs.submodule_search_locations or [])


def made(
    folder: Path, mode: py_compile.PycInvalidationMode = py_compile.PycInvalidationMode.TIMESTAMP
) -> Path:
    source = folder / "made.py"
    source.write_text("value = 1\n")
    py_compile.compile(str(source), doraise=True, invalidation_mode=mode)
    return source


def found(folder: Path, name: str = "otel_memwatch.made") -> ModuleSpec | None:
    return finder().find_spec(name, [str(folder)])


def test_bytecode_of_another_source_is_left_to_python(tmp_path: Path) -> None:
    source = made(tmp_path)
    assert found(tmp_path) is not None
    os.utime(source, (1, 1))
    assert found(tmp_path) is None
    source.unlink()
    assert found(tmp_path) is None


def test_other_kinds_of_bytecode_are_left_to_python(tmp_path: Path) -> None:
    made(tmp_path, py_compile.PycInvalidationMode.CHECKED_HASH)
    assert found(tmp_path) is None
    cached = Path(importlib.util.cache_from_source(str(made(tmp_path))))
    cached.write_bytes(b"\0" + cached.read_bytes()[1:])
    assert found(tmp_path) is None
    cached.write_bytes(b"")
    assert found(tmp_path) is None


def test_modules_of_others_are_left_to_python(tmp_path: Path) -> None:
    made(tmp_path)
    assert found(tmp_path, "package.made") is None
    for name in ("otel_memwatch", "time", "os", "package"):
        assert finder().find_spec(name) is None


@pytest.mark.parametrize("name", ["math", "select", "resource", "_json"])
def test_both_finders_agree_on_compiled_modules(name: str) -> None:
    ours = finder().find_spec(name)
    theirs = None if name in sys.builtin_module_names else PathFinder.find_spec(name)
    if ours is None or theirs is None or theirs.origin is None or "lib-dynload" not in theirs.origin:
        assert ours is None  # it is in the interpreter, or elsewhere
        return
    assert (ours.origin, ours.has_location) == (theirs.origin, theirs.has_location)
    assert type(ours.loader) is type(theirs.loader)
    assert importlib.util.module_from_spec(ours).__file__ == theirs.origin


def test_a_module_of_the_program_does_not_hide_the_library(tmp_path: Path) -> None:
    (tmp_path / "threading.py").write_text("raise SystemExit(3)\n")
    program = (
        "from otel_memwatch.runtime import module_finder as finder; finder.install(); "
        "import threading, json; print(threading.__file__, json.dumps(1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "threading.py 1" in done.stdout
    assert str(tmp_path) not in done.stdout


@pytest.mark.parametrize(
    "unusual", [["-O"], ["-X", "pycache_prefix=/nowhere"], ["--check-hash-based-pycs", "always"]]
)
def test_an_unusual_interpreter_keeps_its_finders(unusual: list[str]) -> None:
    program = (
        "import sys; from otel_memwatch.runtime import module_finder as finder; finder.install(); "
        "print(isinstance(sys.meta_path[0], finder.CachedModules))"
    )
    for options, expected in ((unusual, "False"), ([], "True")):
        done = subprocess.run(
            [sys.executable, *options, "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


# -- modules stored in one file


def stored(folder: Path, *names: str) -> Path:
    """Return a file with modules of a folder, which have bytecode there."""
    for name in names:
        source = folder / f"{name}.py"
        source.write_text(f"value = {name!r}\n")
        py_compile.compile(str(source), doraise=True)
    modules = [finder().read(f"otel_memwatch.{name}", str(folder)) for name in names]
    file = folder / "modules.bin"
    write_store(str(file), ("key",), [one for one in modules if one is not None])
    return file


def value_of(used: module_finder.CachedModules, folder: Path, name: str) -> str | None:
    """Return the value of a module; `None`: this finder does not find it."""
    spec = used.find_spec(f"otel_memwatch.{name}", [str(folder)])
    if spec is None:
        return None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    assert (module.__file__, module.__cached__) == (
        str(folder / f"{name}.py"),
        importlib.util.cache_from_source(str(folder / f"{name}.py")),
    )
    value: str = module.value
    return value


def test_a_stored_module_needs_no_other_file(tmp_path: Path) -> None:
    file = stored(tmp_path, "one", "two")
    for name in ("one", "two"):
        Path(importlib.util.cache_from_source(str(tmp_path / f"{name}.py"))).unlink()
    used = finder(file)
    assert (value_of(used, tmp_path, "one"), value_of(used, tmp_path, "two")) == ("one", "two")
    assert not used.alone


def test_a_changed_source_is_never_taken_from_the_store(tmp_path: Path) -> None:
    file = stored(tmp_path, "one", "two")
    source = tmp_path / "one.py"
    source.write_text("value = 'changed'\n")
    assert value_of(finder(file), tmp_path, "one") is None  # Python compiles it
    py_compile.compile(str(source), doraise=True)
    used = finder(file)
    assert value_of(used, tmp_path, "one") == "changed"
    assert used.alone == {"otel_memwatch.one"}
    os.utime(tmp_path / "two.py", (1, 1))
    assert value_of(finder(file), tmp_path, "two") is None
    (tmp_path / "two.py").unlink()
    assert value_of(finder(file), tmp_path, "two") is None


def test_a_module_of_another_folder_is_not_taken_from_the_store(tmp_path: Path) -> None:
    file = stored(tmp_path, "one")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy2(tmp_path / "one.py", other / "one.py")  # with the same time and size
    assert value_of(finder(file), other, "one") is None


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "replaced", "another key"])
def test_a_damaged_store_is_not_used(tmp_path: Path, damage: str) -> None:
    file = stored(tmp_path, "one", "two")
    data = file.read_bytes()
    if damage == "replaced":  # after its head was read
        used = finder(file)
        stored(tmp_path, "two", "one")
    else:
        changed = {"cut": data[:-20], "empty": b"", "noise": data[:8] + os.urandom(len(data) - 8)}
        file.write_bytes(changed.get(damage, data.replace(b"key", b"yek", 1)))
        used = finder(file)
    assert value_of(used, tmp_path, "one") == "one"
    assert used.alone == {"otel_memwatch.one"}


def test_a_store_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    module = finder().read("otel_memwatch.one", str(stored(tmp_path, "one").parent))
    assert module is not None
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "modules.bin").mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - which error depends on the system
        write_store(str(folder / "modules.bin"), ("key",), [module])
    assert os.listdir(folder) == ["modules.bin"]


def test_later_modules_are_stored_after_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run decodes a segment at once, so modules that one kind of run needs stay together."""
    parent = f"{__name__}_package"
    folder = tmp_path / parent
    folder.mkdir()
    file = stored(folder, "one", "two", "changed")
    monkeypatch.setattr(module_finder, "_folder", lambda _: str(folder))
    monkeypatch.setattr(module_finder, "_STORE", str(file))
    monkeypatch.setattr(module_finder, "_KEY", ("key",))
    used = finder(file)
    for name in ("new", "changed"):
        (folder / f"{name}.py").write_text("value = 'later'\n")
        py_compile.compile(str(folder / f"{name}.py"), doraise=True)
    monkeypatch.setitem(sys.modules, "otel_memwatch.new", importlib)
    used.find_spec("otel_memwatch.new", [str(folder)])
    used.save()
    assert list(ModuleStore(str(file), ("key",))) == [
        "otel_memwatch.one",
        "otel_memwatch.two",
        "otel_memwatch.new",
    ]


@pytest.mark.parametrize(("variables", "expected"), [({}, True), ({"PYTHONDONTWRITEBYTECODE": "1"}, False)])
def test_the_program_stores_its_modules_once(
    tmp_path: Path, variables: dict[str, str], expected: bool
) -> None:
    program = (
        "import sys; from otel_memwatch.runtime import module_finder as finder; "
        f"finder._STORE = {str(tmp_path / 'modules.bin')!r}; finder.install(); "
        "import otel_memwatch.monitor.run.completion, threading, json; finder.store_modules(); "
        "print(len(sys.meta_path[0].alone))"
    )
    for number in range(3):
        if number == 1:  # the first one only compiles the modules
            (tmp_path / "modules.bin").unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **variables},
        )
    assert (tmp_path / "modules.bin").exists() == expected
    assert (int(done.stdout) == 0) == expected


class Noting(module_finder.CachedModules):
    """A finder that notes the modules that Python searches."""

    searched: list[str]

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        self.searched.append(name)
        return super().find_spec(name, path, target)  # type: ignore[arg-type]


ONE, TWO = "otel_memwatch.made.one", "otel_memwatch.made.two"


@pytest.fixture
def noting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noting:
    """A finder in use, with two stored modules: the first imports the second."""
    package = ModuleType("otel_memwatch.made")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    two = "import sys\nif sys.fail: sys.fail -= 1; raise ValueError\nvalue = 2\n"
    monkeypatch.setattr(sys, "fail", 0, raising=False)
    for name, text in (("two", two), ("one", f"from {TWO} import value\n")):
        (tmp_path / f"{name}.py").write_text(text)
        py_compile.compile(str(tmp_path / f"{name}.py"), doraise=True)
    with monkeypatch.context() as first:
        used = finder()
        first.setattr(module_finder, "_folder", lambda _: str(tmp_path))
        first.setattr(module_finder, "_STORE", str(tmp_path / "modules.bin"))
        first.setattr(module_finder, "_KEY", ("key",))
        first.setattr(sys, "meta_path", [used, *sys.meta_path])
        importlib.import_module(ONE)
        used.save()
        del sys.modules[ONE], sys.modules[TWO]
    made = Noting(ModuleStore(str(tmp_path / "modules.bin"), ("key",)))
    made.searched = []
    monkeypatch.setattr(sys, "meta_path", [made, *sys.meta_path])
    monkeypatch.setattr(_thread, "_count", lambda: 0)
    return made


def test_a_stored_module_executes_its_imports_without_a_search(noting: Noting) -> None:
    assert importlib.import_module(ONE).value == 2
    assert (noting.searched, noting.imports[ONE]) == ([ONE], (TWO,))
    for name in (ONE, TWO):
        module = sys.modules.pop(name)
        assert module.__spec__ is not None
        assert (module.__spec__.name, module.__package__) == (name, "otel_memwatch.made")
        assert getattr(sys.modules["otel_memwatch.made"], name.rpartition(".")[2]) is module


def test_beside_other_threads_each_module_is_searched(
    noting: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's import makes the other threads wait for a module that is not complete."""
    monkeypatch.setattr(_thread, "_count", lambda: 1)
    assert importlib.import_module(ONE).value == 2
    assert noting.searched == [ONE, TWO]
    del sys.modules[ONE], sys.modules[TWO]


def test_nothing_is_found_in_a_module_that_is_no_package(noting: Noting) -> None:
    with pytest.raises(ImportError, match="cannot import name 'three'"):
        exec(f"from {ONE} import three")
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module(f"{ONE}.three")
    assert f"{ONE}.three" in noting.searched
    del sys.modules[ONE], sys.modules[TWO]


def test_a_module_that_fails_is_left_to_its_import(noting: Noting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "fail", 1)
    assert importlib.import_module(ONE).value == 2  # the second time
    assert noting.searched == [ONE, TWO]
    del sys.modules[ONE], sys.modules[TWO]
    monkeypatch.setattr(sys, "fail", 2)
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        importlib.import_module(ONE)
    assert not {ONE, TWO} & sys.modules.keys()


def test_package_managers_remove_the_stored_modules() -> None:
    """They remove the bytecode of each module that they remove."""
    source = str(files("otel_memwatch.runtime") / "stored_modules.py")
    assert importlib.util.cache_from_source(source) == module_finder._STORE


def test_stored_modules_are_no_bytecode_for_python(tmp_path: Path) -> None:
    (tmp_path / "stored_modules.py").write_text('"""Empty."""\n')
    cached = Path(importlib.util.cache_from_source(str(tmp_path / "stored_modules.py")))
    cached.parent.mkdir()
    write_store(str(cached), ("key",), [])
    done = subprocess.run(
        [sys.executable, "-c", "import stored_modules; print(stored_modules.__doc__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == "Empty.\n"


def test_modules_are_not_read_if_they_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all of them took 40 ms after each run of a user who cannot write into the package."""
    found = finder()
    found.alone = {f"module{number}" for number in range(30)}
    monkeypatch.setattr(found, "save", pytest.fail)
    monkeypatch.setattr(sys, "meta_path", [found])
    monkeypatch.setattr(os, "access", lambda *_: False)
    module_finder.store_modules()
