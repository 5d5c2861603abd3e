"""Reports and pictures made in a separate process: their memory is not part of the measurement."""

from __future__ import annotations

from otel_memwatch.errors import MemwatchError
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = 600.0


def run_in_own_process(module: str, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the last answer of a worker process, empty if it gave none. Raise `MemwatchError` if it fails."""
    from otel_memwatch.runtime.worker import Worker, ended_by

    try:
        with Worker(module) as worker:
            worker.give(job)
            answers = list(worker.answers(_SECONDS))
            if not worker.finished:
                raise MemwatchError(f"The report cannot be made: it took more than {_SECONDS:.0f} s.")
            code = worker.end()
    except (OSError, MemoryError) as error:
        raise MemwatchError(f"The report cannot be made: {error}.") from None
    if code != 0:
        raise MemwatchError(f"The report cannot be made: {worker.last_words or ended_by(code)}")
    return answers[-1] if answers else {}
