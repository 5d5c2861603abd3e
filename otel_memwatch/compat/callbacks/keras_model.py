"""Peak memory of every epoch of a Keras model's `fit`."""

from __future__ import annotations

from typing import Any

from otel_memwatch.compat.callbacks.epochs import EpochMemory, EpochMeter
from otel_memwatch.compat.callbacks.frameworks import framework

_Base: Any = framework("keras.callbacks", "tensorflow.keras.callbacks", install="keras").Callback


class KerasPeakMemory(_Base):  # type: ignore[misc]
    """`model.fit(..., callbacks=[KerasPeakMemory()])`; figures are put into each epoch's logs, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = EpochMeter()

    @property
    def epochs(self) -> list[EpochMemory]:
        """What has been measured."""
        return self.meter.epochs

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras' signature
        """The training begins."""
        self.meter.begin_training()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """An epoch begins."""
        self.meter.begin_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """An epoch has ended."""
        measured = self.meter.end_epoch()
        if measured is not None and logs is not None:
            for name in ("cpu_used", "cpu_peak", "cpu_peaked", "gpu_used", "gpu_peaked"):
                logs[f"memwatch_{name}"] = float(getattr(measured, name))

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """The training has ended."""
        self.meter.end_training()
