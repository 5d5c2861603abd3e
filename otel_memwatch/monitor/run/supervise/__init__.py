"""Start a command so that it cannot tell that we are there, see it through, and end as it ended.

`launch` starts it, `Target.wait` passes signals on, follows its stops and reaps the whole tree, `end_like`
gives its exit code or its signal to whoever started us. The process that calls these is parent, subreaper and
monitor in one: main thread here, everything else in threads that are started after `launch`.
"""

from otel_memwatch.monitor.run.supervise.ending import end_like
from otel_memwatch.monitor.run.supervise.start import launch
from otel_memwatch.monitor.run.supervise.target import Target

__all__ = ["Target", "end_like", "launch"]
