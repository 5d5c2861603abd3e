"""Supervision of a command, which runs as it would without us.

- `launch` starts the command.
- `Target.wait` passes on signals, follows the command's stops and reaps the whole tree.
- `end_like` ends this process with the command's exit code or signal.

The process that calls these is parent, subreaper and monitor in one. Its main thread runs here. All other threads start
after `launch`.
"""

from otel_memwatch.runtime import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.monitor.run.supervise.start import launch
    from otel_memwatch.monitor.run.supervise.target import Target, end_like

__all__ = ["Target", "end_like", "launch"]

__getattr__ = lazy.names(__name__, {"launch": "start", "Target": "target", "end_like": "target"})
