"""Peak memory of every epoch of a fastai 2 `Learner`, as columns of its table."""

from __future__ import annotations

from typing import Any

from otel_memwatch.compat.callbacks.epochs import EpochMemory, EpochMeter
from otel_memwatch.compat.callbacks.frameworks import framework

_core: Any = framework("fastai.callback.core", install="fastai")
_learner: Any = framework("fastai.learner", install="fastai")

_COLUMNS = (
    ("cpu used", "cpu_used"),
    ("cpu peak", "cpu_peaked"),
    ("gpu used", "gpu_used"),
    ("gpu peak", "gpu_peaked"),
)


class _Column(_learner.Metric):  # type: ignore[misc]
    """One column; its value is asked for when an epoch's validation has ended."""

    def __init__(self, owner: FastaiPeakMemory, name: str, field: str) -> None:
        self._owner, self._name, self._field = owner, name, field

    def reset(self) -> None:
        """Nothing is accumulated."""

    def accumulate(self, learn: Any) -> None:
        """Nothing is accumulated."""

    @property
    def value(self) -> int:
        """MB of 2**20 bytes."""
        self._owner.end_epoch()
        return int(getattr(self._owner.epochs[-1], self._field) / 2**20) if self._owner.epochs else 0

    @property
    def name(self) -> str:
        """Heading."""
        return self._name


class FastaiPeakMemory(_core.Callback):  # type: ignore[misc]
    """`Learner(..., cbs=FastaiPeakMemory())`: columns "cpu used", "cpu peak", "gpu used", "gpu peak", in MB."""

    order = -20

    def __init__(self) -> None:
        super().__init__()
        self.meter = EpochMeter()
        self._columns = [_Column(self, name, field) for name, field in _COLUMNS]

    @property
    def epochs(self) -> list[EpochMemory]:
        """What has been measured."""
        return self.meter.epochs

    def end_epoch(self) -> None:
        """The epoch has ended, unless it has already."""
        self.meter.end_epoch()

    def before_fit(self) -> None:
        """The training begins."""
        self.meter.begin_training()
        self.learn.metrics = [*self.learn.metrics, *self._columns]

    def before_epoch(self) -> None:
        """An epoch begins."""
        self.meter.begin_epoch(int(self.learn.epoch))

    def after_epoch(self) -> None:
        """An epoch has ended."""
        self.end_epoch()

    def after_fit(self) -> None:
        """The training has ended."""
        self.learn.metrics = [metric for metric in self.learn.metrics if metric not in self._columns]
        self.meter.end_training()
