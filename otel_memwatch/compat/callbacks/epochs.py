"""Memory of each epoch of a training, measured as an operation: exact peaks, no thread, no tracemalloc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from otel_memwatch.compat.recording import Recording, acquire, release

if TYPE_CHECKING:
    from collections.abc import Callable

_MB = 2**20


class EpochMemory(NamedTuple):
    """One epoch, in bytes."""

    epoch: int
    cpu_used: int
    """Resident memory of the process gained in it."""
    cpu_peak: int
    """Largest resident memory in it."""
    cpu_peaked: int
    """How far that was above the larger of its ends: the overhead."""
    gpu_used: int
    """Memory in tensors gained in it, over all devices that the program's library holds."""
    gpu_peaked: int
    """How far the peak in tensors was above the larger of its ends."""
    certainty: str
    """How surely `cpu_peak` is known; see `model.Certainty`."""

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch}: cpu used {self.cpu_used / _MB:,.0f} peaked {self.cpu_peaked / _MB:,.0f} MB, "
            f"gpu used {self.gpu_used / _MB:,.0f} peaked {self.gpu_peaked / _MB:,.0f} MB"
        )


class EpochMeter:
    """Measures epochs, one after the other. A monitor is started beside the program for the time of the training.

    Attributes:
        epochs: what has been measured.

    """

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self.epochs: list[EpochMemory] = []
        self._report = report
        self._recording: Recording | None = None
        self._operation: Any = None
        self._epoch = 0

    def begin_training(self) -> None:
        """Before the first epoch."""
        if self._recording is None:
            self._recording = acquire(0.1)

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins; one that was not ended is given up."""
        from otel_memwatch.in_target.operations import operation

        self.begin_training()
        self._give_up()
        self._epoch = epoch
        self._operation = operation(f"epoch {epoch}").__enter__()

    def end_epoch(self) -> EpochMemory | None:
        """The epoch has ended: its figures; `None` when none had begun."""
        if self._operation is None:
            return None
        opened, self._operation = self._operation, None
        opened.__exit__(None, None, None)
        measured = _epoch_memory(self._epoch, opened.figures)
        self.epochs.append(measured)
        if self._report is not None:
            self._report(str(measured))
        return measured

    def _give_up(self) -> None:
        if self._operation is not None:
            self._operation.__exit__(None, None, None)
            self._operation = None

    def end_training(self) -> None:
        """After the last epoch, also when it failed."""
        self._give_up()
        if self._recording is not None:
            release(self._recording, keep=False)
            self._recording = None


def _epoch_memory(epoch: int, figures: Any) -> EpochMemory:
    if figures is None:
        return EpochMemory(epoch, 0, 0, 0, 0, 0, "sampled")
    start, end, peak = figures.start or 0, figures.end or 0, figures.peak or 0
    devices = (figures.gpu or {}).values()
    return EpochMemory(
        epoch=epoch,
        cpu_used=end - start,
        cpu_peak=peak,
        cpu_peaked=max(0, peak - max(start, end)),
        gpu_used=sum(device["end"] - device["start"] for device in devices),
        gpu_peaked=sum(max(0, device["peak"] - max(device["start"], device["end"])) for device in devices),
        certainty=figures.certainty,
    )
