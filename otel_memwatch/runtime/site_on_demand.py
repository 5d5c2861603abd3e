"""Python's `site` module, run at the first import from outside the standard library and this package.

It finds the packages of the installation and takes 3 ms, which the start of a command saves (`monitor/launcher/launch.c`).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_OURS = __name__.partition(".")[0]


class SiteOnDemand:
    """Entry of `sys.meta_path` that finds nothing itself."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG004 - Python passes them
        """Run `site` before others search for a package of the installation; ask all, also those that it has added."""
        if path is None and name != _OURS and name not in sys.stdlib_module_names:
            sys.meta_path.remove(SiteOnDemand)
            import importlib.util
            import site

            site.main()
            return importlib.util.find_spec(name)
        return None


def install() -> None:
    """Run `site` when it is needed."""
    sys.meta_path.insert(0, SiteOnDemand)
