"""Finder of the package's modules, and of the standard library's, for the program: `wrap` imports 190 while the command waits.

Python's finder takes 60 us a module: it lists directories and looks for six kinds of files. This one opens the cached
bytecode of a module and checks as Python does that it fits the time and size of the source. In every other case Python's
finder does the work, which also compiles and caches.

The modules of earlier runs are in one file (`module_store.py`), with the same check.

Only the program uses it. A program that imports the package keeps its import system.
"""

from __future__ import annotations

import _imp
import _thread
import os
import sys
from marshal import loads

from otel_memwatch.runtime.module_store import ModuleStore, StoredModule, write_store

TYPE_CHECKING = False  # `typed.py` is found by this finder
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
    from types import CodeType, ModuleType
    from typing import Any
else:  # `importlib.machinery` has them too, but importing it takes 0.3 ms
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader

_Module: type[ModuleType] = type(sys)
_external: Any = sys.modules.get("_frozen_importlib_external")
"""Python's finder, which has the parts that check and read bytecode."""
_PREFIX = f"{__name__.partition('.')[0]}."
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_LIBRARY = os.path.dirname(os.__file__)
"""Folder of the standard library. Python's finder searches it after the folder of the program."""
_COMPILED = f"{_LIBRARY}/lib-dynload/%s{(_imp.extension_suffixes() or [''])[0]}"
"""File of a compiled module of the standard library, if it is not in the interpreter."""
_MOST = 120 << 10
"""Bytes of a file that is read at once. A larger one is left to Python. glibc maps and unmaps a buffer of 128 KiB each time."""


class _CachedLoader(SourceFileLoader):
    """Loader of a module whose bytecode was read."""

    code: CodeType | None = None
    finder: CachedModules

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module with its files: Python asks a new module for these, and each missing attribute takes 2 us.

        Each `from` asks for the path of a package. A module of ours has an empty one, in which nothing is found.
        """
        module = _Module(spec.name)
        module.__dict__.update(__file__=spec.origin, __cached__=spec.cached)
        if spec.submodule_search_locations is not None or spec.name.startswith(_PREFIX):
            module.__path__ = spec.submodule_search_locations or []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, first those that it imports, and note which these are."""
        name, completed = module.__name__, self.finder.completed
        begin = len(completed)
        self.finder.execute_imports(name)
        super().exec_module(module)
        self.finder.imports[name] = tuple(completed[begin:])
        completed.append(name)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code that was read, once. Another call, as by `importlib.reload`, reads again."""
        code, self.code = self.code, None
        return super().get_code(fullname) if code is None else code


class CachedModules:
    """Entry of `sys.meta_path`.

    Args:
        store: modules that are taken from there, unless their source has changed.

    Attributes:
        alone: modules that were found in files of their own.
        completed: modules in the order in which they were complete.
        imports: those that became complete while a module was executed.

    """

    def __init__(self, store: ModuleStore) -> None:
        self._store = store
        self.alone: set[str] = set()
        self.completed: list[str] = []
        self.imports: dict[str, tuple[str, ...]] = {}
        self._start = _external.MAGIC_NUMBER + bytes(4)
        """Begin of a file with time and size of its source (PEP 552)."""
        self._suffix = f".{sys.implementation.cache_tag}.pyc"
        self._buffers: list[bytearray] = []
        """Buffers for files, of which each thread takes one. A new one for each module would enlarge and shrink the heap."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,  # noqa: ARG002 - Python passes it
    ) -> ModuleSpec | None:
        """Return the specification of a module with valid bytecode, or of a compiled one; `None`: Python has to find it."""
        if not name.startswith(_PREFIX):
            folder = _folder(name)
            if name.partition(".")[0] not in sys.stdlib_module_names or _is_inside(name):
                return None
            if path is not None and list(path) != [folder]:
                return None
            path = (folder,)
        if path is None or len(path) != 1:
            return None
        place = self._store.place(name)
        if place is not None:
            spec = self._stored(name, path[0], place)
            if spec is not None:
                return spec
        try:
            found = self.read(name, path[0])
        except FileNotFoundError:
            return None if name.startswith(_PREFIX) else _compiled(name)
        except OSError:
            return None
        if found is None:
            return None
        self.alone.add(name)
        return self._spec(name, found.source, found.code, is_package=found.is_package)

    def execute_imports(self, name: str) -> None:
        """Execute the stored modules that a stored one imports at once: Python's import takes 30 000 instructions more for each.

        It keeps other threads from a module that is not complete. So this is only for a program with one thread.
        """
        place = self._store.place(name)
        if place is None or _thread._count():  # noqa: SLF001
            return
        *_, imports = place
        for one in imports:
            if one not in sys.modules:
                self._execute(one)

    def _execute(self, name: str) -> None:
        """Execute a stored module. One that fails is left to the import that needs it, which fails too."""
        package, _, tail = name.rpartition(".")
        place, parent = self._store.place(name), sys.modules.get(package)
        spec = None if place is None or parent is None else self._stored(name, parent.__path__[0], place)
        if spec is None or parent is None:
            return
        loader: Any = spec.loader
        module = loader.create_module(spec)
        module.__dict__.update(__spec__=spec, __loader__=loader, __package__=spec.parent)
        sys.modules[name] = module
        try:
            exec(loader.get_code(name), module.__dict__)  # noqa: S102 - Python does the same
        except Exception:  # noqa: BLE001
            del sys.modules[name]
        else:
            setattr(parent, tail, module)
            self.completed.append(name)

    def _stored(
        self, name: str, folder: str, place: tuple[int, bool, int, int, tuple[str, ...]]
    ) -> ModuleSpec | None:
        """Return the specification of a stored module; `None`: its source has changed."""
        segment, is_package, time, size, _ = place
        source = f"{folder}/{name.rpartition('.')[2]}{'/__init__.py' if is_package else '.py'}"
        try:
            status = os.stat(source)
        except OSError:
            return None
        if int(status.st_mtime) & 0xFFFFFFFF != time or status.st_size & 0xFFFFFFFF != size:
            return None
        code = self._store.code(name, segment)
        return (
            None
            if code is None or code.co_filename != source
            else self._spec(name, source, code, is_package=is_package)
        )

    def _spec(self, name: str, source: str, code: CodeType, *, is_package: bool) -> ModuleSpec:
        loader = _CachedLoader(name, source)
        loader.code, loader.finder = code, self
        spec = ModuleSpec(name, loader, origin=source, is_package=is_package)
        folder, _, file = source.rpartition("/")
        spec.has_location, spec.cached = True, f"{folder}/__pycache__/{file[:-3]}{self._suffix}"
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(folder)
        return spec

    def read(self, name: str, folder: str) -> StoredModule | None:
        """Return a module with the bytecode of a file for it alone; `None`: it does not fit the source.

        Raises `OSError` if there is no such file, or no source.
        """
        tail = name.rpartition(".")[2]
        cached, source, is_package = (
            f"{folder}/__pycache__/{tail}{self._suffix}",
            f"{folder}/{tail}.py",
            False,
        )
        try:
            descriptor = os.open(cached, os.O_RDONLY)
        except FileNotFoundError:
            home = f"{folder}/{tail}"
            cached, source, is_package = (
                f"{home}/__pycache__/__init__{self._suffix}",
                f"{home}/__init__.py",
                True,
            )
            descriptor = os.open(cached, os.O_RDONLY)
        buffer = self._buffers.pop() if self._buffers else bytearray(_MOST)
        try:
            end = os.readv(descriptor, [buffer])
        finally:
            os.close(descriptor)
        try:
            status = os.stat(source)
        except OSError:
            return None
        time, size = int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF
        header = b"%b%b%b" % (self._start, time.to_bytes(4, "little"), size.to_bytes(4, "little"))
        data = memoryview(buffer)[:end]
        if data[: len(header)] != header or end == _MOST:
            return None
        code = loads(data[len(header) :])  # noqa: S302 - Python does the same
        self._buffers.append(buffer)
        _imp._fix_co_filename(code, source)  # type: ignore[attr-defined]  # noqa: SLF001
        return StoredModule(name, source, is_package=is_package, time=time, size=size, code=code)

    def save(self) -> None:
        """Store the modules that were found, after those that are stored already, unless their sources have changed.

        Raises `OSError` if that is not possible.
        """
        found = [name for name in sys.modules if name in self.alone]
        modules = []
        for name in dict.fromkeys((*self._store, *found)):
            try:
                one = self.read(name, _folder(name))
            except OSError:
                continue
            if one is None:
                continue
            place = self._store.place(name)
            if name in self.alone or (place is not None and place[2:4] == (one.time, one.size)):
                one.imports = self.imports.get(name, ()) if name in self.alone or place is None else place[4]
                modules.append(one)
        write_store(_STORE, _KEY, modules)


def _folder(name: str) -> str:
    """Return the folder of a module of ours or of the standard library."""
    home = os.path.dirname(_PACKAGE) if name.startswith(_PREFIX) else _LIBRARY
    return f"{home}/{name.replace('.', '/')}".rpartition("/")[0]


def _compiled(name: str) -> ModuleSpec | None:
    """Return the specification of a compiled module of the standard library; `None`: Python has to find it."""
    file = _COMPILED % name
    if not os.path.exists(file):
        return None
    spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
    spec.has_location = True
    return spec


def _is_inside(name: str) -> bool:
    """Return whether the interpreter contains a module."""
    return name in sys.builtin_module_names or _imp.is_frozen(name)


_KEY = (bytes(_external.MAGIC_NUMBER), _PACKAGE, _LIBRARY)
"""The stored modules are for this interpreter and these folders."""
_STORE = f"{_PACKAGE}/runtime/__pycache__/stored_modules.{sys.implementation.cache_tag}.pyc"
"""Bytecode of `stored_modules.py`, for Python and for package managers."""
_FEW = 8
"""Number of modules that may miss in the stored ones. Other options need other modules."""


def install() -> None:
    """Find modules of ours with `CachedModules`, unless Python keeps or checks its bytecode in an unusual way."""
    unusual = sys.flags.optimize or sys.pycache_prefix is not None or sys.implementation.cache_tag is None
    if not unusual and _imp.check_hash_based_pycs != "always" and hasattr(_external, "_compile_bytecode"):
        sys.meta_path.insert(0, CachedModules(ModuleStore(_STORE, _KEY)))


def store_modules() -> None:
    """Store the modules that this program has found, if more than a few are not stored yet. Raises nothing."""
    finder = sys.meta_path[0] if sys.meta_path else None
    if not isinstance(finder, CachedModules) or len(finder.alone) <= _FEW or sys.dont_write_bytecode:
        return
    if not os.access(os.path.dirname(_STORE), os.W_OK):  # reading all modules takes 40 ms
        return
    try:
        finder.save()
    except OSError:  # the folder is not writable, or the disk is full
        return
