"""Classes that are there to say what to use instead."""

from __future__ import annotations


class MetricsCollector:
    """Not supported: nothing is read inside the program."""

    def __init__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(
            "There is no collector in the program; QEffMemoryProfiler.samples has the samples."
        )


class QEffMemoryVisualizer:
    """Not supported: the profiler draws by itself."""

    def __init__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(
            "Use QEffMemoryProfiler.generate_memory_graph, or otel-memwatch plot RUN --style phases."
        )
