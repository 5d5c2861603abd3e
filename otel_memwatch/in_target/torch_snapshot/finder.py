"""Import of torch in the watched program: `snapshots` is loaded right after it.

Only the standard library, and no other module of this package: this file also runs without an installed package.
"""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_begun: set[int] = set()
"""PIDs of processes with snapshots: a fork copies the set."""


class TorchFinder:
    """Finder that has torch found by the others, and calls `begin` after its import."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of torch; `None` for other modules. Programs may search for torch without importing it."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    self._follow(spec.loader)
                    return spec
        return None

    def _follow(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def execute_and_begin(module: Any) -> None:
            execute(module)
            begin(sys.modules.get("torch", module), self._directory)

        try:
            loader.exec_module = execute_and_begin
        except AttributeError:  # a loader without attributes: no snapshots
            pass


def wait_for_torch(directory: str) -> None:
    """Write snapshots of this process into a run directory from now on, or once it imports torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        sys.meta_path.insert(0, TorchFinder(directory))
    else:
        begin(torch, directory)


def begin(torch: Any, directory: str) -> None:
    """Let `snapshots` follow the allocator of this process. Never raises."""
    if os.getpid() in _begun:
        return
    _begun.add(os.getpid())
    try:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "snapshots.py")
        spec = spec_from_file_location("_otel_memwatch_torch_snapshots", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        module.begin(torch, directory)
    except Exception:
        pass
