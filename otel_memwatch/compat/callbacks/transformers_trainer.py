"""Peak memory of every epoch of Hugging Face's `Trainer`."""

from __future__ import annotations

from typing import Any

from otel_memwatch.compat.callbacks.epochs import EpochMemory, EpochMeter
from otel_memwatch.compat.callbacks.frameworks import framework

_Base: Any = framework("transformers", install="transformers").TrainerCallback


class TrainerPeakMemory(_Base):  # type: ignore[misc]
    """`Trainer(..., callbacks=[TrainerPeakMemory()])`; figures are put into the state's log history, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = EpochMeter()

    @property
    def epochs(self) -> list[EpochMemory]:
        """What has been measured."""
        return self.meter.epochs

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - Trainer's signature
        """The training begins."""
        self.meter.begin_training()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """An epoch begins."""
        self.meter.begin_epoch(int(state.epoch or 0))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """An epoch has ended."""
        measured = self.meter.end_epoch()
        if measured is not None:
            figures = {
                f"memwatch_{name}": value for name, value in measured._asdict().items() if name != "epoch"
            }
            state.log_history.append({"epoch": state.epoch, "step": state.global_step, **figures})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """The training has ended."""
        self.meter.end_training()
