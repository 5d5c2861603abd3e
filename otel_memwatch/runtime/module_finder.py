"""Finder of the package's modules, and of the standard library's, for the program: `wrap` imports 190 while the command waits.

Python's finder takes 60 us a module: it lists directories and looks for six kinds of files. This one opens the cached
bytecode of a module and checks as Python does that it fits the time and size of the source. In every other case Python's
finder does the work, which also compiles and caches.

Only the program uses it. A program that imports the package keeps its import system.
"""

from __future__ import annotations

import _imp
import os
import sys
from marshal import loads

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
    from types import CodeType, ModuleType
else:  # `importlib.machinery` has them too, but importing it takes 0.3 ms
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader

_external: Any = sys.modules.get("_frozen_importlib_external")
"""Python's finder, which has the parts that check and read bytecode."""
_PREFIX = f"{__name__.partition('.')[0]}."
_LIBRARY = os.path.dirname(os.__file__)
"""Folder of the standard library. Python's finder searches it after the folder of the program."""
_COMPILED = f"{_LIBRARY}/lib-dynload/%s{(_imp.extension_suffixes() or [''])[0]}"
"""File of a compiled module of the standard library, if it is not in the interpreter."""
_MOST = 120 << 10
"""Bytes of a file that is read at once. A larger one is left to Python. glibc maps and unmaps a buffer of 128 KiB each time."""


class _CachedLoader(SourceFileLoader):
    """Loader of a module whose bytecode was read."""

    code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code that was read, once. Another call, as by `importlib.reload`, reads again."""
        code, self.code = self.code, None
        return super().get_code(fullname) if code is None else code


class CachedModules:
    """Entry of `sys.meta_path`."""

    def __init__(self) -> None:
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
            if path is not None or name not in sys.stdlib_module_names or _is_inside(name):
                return None
            path = (_LIBRARY,)
        if path is None or len(path) != 1:
            return None
        tail = name.rpartition(".")[2]
        folder = f"{path[0]}/{tail}"
        cached, source = f"{path[0]}/__pycache__/{tail}{self._suffix}", f"{folder}.py"
        try:
            is_package = False
            try:
                descriptor = os.open(cached, os.O_RDONLY)
            except FileNotFoundError:
                is_package = True
                cached, source = f"{folder}/__pycache__/__init__{self._suffix}", f"{folder}/__init__.py"
                try:
                    descriptor = os.open(cached, os.O_RDONLY)
                except FileNotFoundError:
                    return None if name.startswith(_PREFIX) else _compiled(name)
            buffer = self._buffers.pop() if self._buffers else bytearray(_MOST)
            try:
                end = os.readv(descriptor, [buffer])
            finally:
                os.close(descriptor)
            status = os.stat(source)
        except OSError:
            return None
        time, size = int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF
        header = b"%b%b%b" % (self._start, time.to_bytes(4, "little"), size.to_bytes(4, "little"))
        data = memoryview(buffer)[:end]
        if data[: len(header)] != header or end == _MOST:
            return None
        loader = _CachedLoader(name, source)
        loader.code = code = loads(data[len(header) :])  # noqa: S302 - Python does the same
        self._buffers.append(buffer)
        _imp._fix_co_filename(code, source)  # type: ignore[attr-defined]  # noqa: SLF001
        spec = ModuleSpec(name, loader, origin=source, is_package=is_package)
        spec.has_location, spec.cached = True, cached
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(folder)
        return spec


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


def install() -> None:
    """Find modules of ours with `CachedModules`, unless Python keeps or checks its bytecode in an unusual way."""
    unusual = sys.flags.optimize or sys.pycache_prefix is not None or sys.implementation.cache_tag is None
    if not unusual and _imp.check_hash_based_pycs != "always" and hasattr(_external, "_compile_bytecode"):
        sys.meta_path.insert(0, CachedModules())
