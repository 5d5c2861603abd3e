"""Each Python of a run under `--torch-snapshot` loads this module at its start. It waits for `import torch`.

The syntax is that of Python 2 and 3, because any Python of the run may find this file. No error of ours reaches the
program. Then the `sitecustomize` that this one hides is loaded, if there is one.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _here]
if sys.version_info >= (3, 8):
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        _path = os.path.join(os.path.dirname(_here), "finder.py")
        _spec = spec_from_file_location("_otel_memwatch_torch_finder", _path)
        assert _spec is not None
        assert _spec.loader is not None
        _finder = module_from_spec(_spec)
        _spec.loader.exec_module(_finder)
        _finder.wait_for_torch(os.environ["OTEL_MEMWATCH_RUN_DIR"])
    except Exception:
        pass

_ours = sys.modules.pop("sitecustomize", None)
try:
    __import__("sitecustomize")
except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    if _ours is not None:
        sys.modules.setdefault("sitecustomize", _ours)
