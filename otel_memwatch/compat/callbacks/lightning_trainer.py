"""Peak memory of every epoch of PyTorch Lightning's `Trainer`."""

from __future__ import annotations

from typing import Any

from otel_memwatch.compat.callbacks.epochs import EpochMemory, EpochMeter
from otel_memwatch.compat.callbacks.frameworks import framework

_Base: Any = framework("lightning.pytorch", "pytorch_lightning", install="lightning").Callback


class LightningPeakMemory(_Base):  # type: ignore[misc]
    """`Trainer(callbacks=[LightningPeakMemory()])`; figures are logged as memwatch/..., in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = EpochMeter()

    @property
    def epochs(self) -> list[EpochMemory]:
        """What has been measured."""
        return self.meter.epochs

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's signature
        """The training begins."""
        self.meter.begin_training()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """An epoch begins."""
        self.meter.begin_epoch(int(trainer.current_epoch))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """An epoch has ended."""
        measured = self.meter.end_epoch()
        if measured is not None:
            names = ("cpu_used", "cpu_peak", "cpu_peaked", "gpu_used", "gpu_peaked")
            pl_module.log_dict({f"memwatch/{name}": float(getattr(measured, name)) for name in names})

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """The training has ended."""
        self.meter.end_training()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """The training has failed."""
        self.meter.end_training()
