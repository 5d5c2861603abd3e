"""Facts that compare a run's use with its request and with predictions."""

from __future__ import annotations

from otel_memwatch.run.asked import asked, gpus_used
from otel_memwatch.run.figures import predictions
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import amount, clean, count, digits, duration, peak_figure, size

if TYPE_CHECKING:
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun


def request(run: RecordedRun, page: Page) -> None:
    """Write how much of its request the run used; nothing without a scheduler's request or a CPU limit.

    Another fact covers a memory limit without a request.
    """
    found = asked(run)
    if found.by is None and found.cores is None:
        return
    parts, devices = [], gpus_used(run)
    if found.memory is not None and run.peaks.tree is not None:
        parts.append(f"memory {peak_figure(run.peaks.tree)} of {size(found.memory)}")
    if found.cores is not None and run.cores is not None:
        parts.append(f"{digits(run.cores, 1 if run.cores < 0.1 else 2)} of {digits(found.cores, 3)} cores")
    if found.gpus is not None and devices is not None:
        parts.append(f"{devices} of {count(found.gpus, 'GPU')}")
    if found.seconds is not None:
        parts.append(f"{duration(run.seconds)} of {duration(found.seconds)}")
    if parts:
        page.fact("asked", "used " + ", ".join(parts) + (f" ({clean(found.by)} request)" if found.by else ""))


def prediction(run: RecordedRun, page: Page) -> None:
    """Write each predicted figure beside the measured one."""
    for index, found in enumerate(predictions(run)):
        words = f"{found.words} {amount(found.predicted, found.unit)}"
        if found.ratio is None:
            words += ", not measured"
        else:
            words += f", measured {amount(found.measured, found.unit)}: {digits(found.ratio, 3)} times the prediction"
        page.fact("" if index else "predicted", words)
