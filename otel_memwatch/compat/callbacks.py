"""Peak memory of every epoch, as a callback of fastai 2, PyTorch Lightning, Keras or Hugging Face's Trainer.

Each callback has `epochs`, a list of `EpochMemory`. The first access to a callback's name creates its class and imports
its framework. The callbacks follow `callbacks.mem.PeakMemMetric` of fastai 1.

    FastaiPeakMemory      learn = Learner(..., cbs=FastaiPeakMemory()): four columns in the table of epochs
    LightningPeakMemory   Trainer(callbacks=[LightningPeakMemory()]): logged as memwatch/cpu_peak ...
    KerasPeakMemory       model.fit(..., callbacks=[KerasPeakMemory()]): in the logs of each epoch
    TrainerPeakMemory     Trainer(..., callbacks=[TrainerPeakMemory()]): in the log history

Works the same:
    Used and peaked memory of CPU and GPU for each epoch, in MB of 2**20 bytes; zeros without a GPU.

Differs, and why:
    * CPU memory is the memory of the whole process. The older tool used tracemalloc, which only sees Python's allocations,
      slows the training down and ends any tracing that the program started.
    * Peaks come from the high-water marks of the kernel and the allocator, without polling and without emptying a cache.
    * A GPU's peak is exact if it rose in the epoch. With `OTEL_MEMWATCH_EXACT_GPU=1` it is always exact.
    * An epoch is an operation `epoch n` of the run, and a span if OpenTelemetry is configured.

Not supported:
    fastai 1, which does not run on current versions of Python.
"""

from __future__ import annotations

from importlib import import_module
from types import new_class
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_memwatch.compat.shared_recording import ToolRecording, acquire, release
from otel_memwatch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EpochMemory", "EpochMeter"]
# The callbacks are not listed: `import *` must not fail because a framework is not installed.

_MB = 2**20

_FIGURES = ("cpu_used", "cpu_peak", "cpu_peaked", "gpu_used", "gpu_peaked")
"""Fields of `EpochMemory` that frameworks log."""


class EpochMemory(NamedTuple):
    """Memory of one epoch, in bytes."""

    epoch: int
    cpu_used: int
    """Growth of the process's resident memory in it."""
    cpu_peak: int
    """Largest resident memory in it."""
    cpu_peaked: int
    """Overhead: the peak minus the larger of the values at its two ends."""
    gpu_used: int
    """Growth of memory in tensors in it, over all devices of the program's library."""
    gpu_peaked: int
    """Peak in tensors minus the larger of the values at its two ends."""
    certainty: str
    """Certainty of `cpu_peak`; see `model.Certainty`."""

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch}: cpu used {self.cpu_used / _MB:,.0f} peaked {self.cpu_peaked / _MB:,.0f} MB, "
            f"gpu used {self.gpu_used / _MB:,.0f} peaked {self.gpu_peaked / _MB:,.0f} MB"
        )


class EpochMeter:
    """Meter of consecutive epochs. It starts a separate monitor process for the duration of the training.

    Attributes:
        epochs: figures of all measured epochs.

    """

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self.epochs: list[EpochMemory] = []
        self._report = report
        self._recording: ToolRecording | None = None
        self._operation: Any = None
        self._epoch = 0

    def begin_training(self) -> None:
        """Start the monitor; call before the first epoch."""
        if self._recording is None:
            self._recording = acquire(0.1)

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch and discard an unfinished one."""
        from otel_memwatch.in_target.operations import operation

        self.begin_training()
        self.discard()
        self._epoch = epoch
        self._operation = operation(f"epoch {epoch}").__enter__()

    def end_epoch(self) -> EpochMemory | None:
        """End the epoch and return its figures; `None` if none had begun."""
        if self._operation is None:
            return None
        ended, self._operation = self._operation, None
        ended.__exit__(None, None, None)
        figures = ended.figures
        if figures is None:
            measured = EpochMemory(self._epoch, 0, 0, 0, 0, 0, "sampled")
        else:
            start, end, peak = figures.start or 0, figures.end or 0, figures.peak or 0
            gpus = (figures.gpu or {}).values()
            measured = EpochMemory(
                epoch=self._epoch,
                cpu_used=end - start,
                cpu_peak=peak,
                cpu_peaked=max(0, peak - max(start, end)),
                gpu_used=sum(gpu["end"] - gpu["start"] for gpu in gpus),
                gpu_peaked=sum(max(0, gpu["peak"] - max(gpu["start"], gpu["end"])) for gpu in gpus),
                certainty=figures.certainty,
            )
        self.epochs.append(measured)
        if self._report is not None:
            self._report(str(measured))
        return measured

    def discard(self) -> None:
        """End an unfinished epoch without reporting it."""
        if self._operation is not None:
            self._operation.__exit__(None, None, None)
            self._operation = None

    def end_training(self) -> None:
        """Stop the monitor; call after the last epoch, even if it failed."""
        self.discard()
        if self._recording is not None:
            release(self._recording, keep=False)
            self._recording = None


class _EpochCallback:
    """Common part of all callbacks. A callback class combines one of the hook classes with the framework's base class."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = EpochMeter()

    @property
    def epochs(self) -> list[EpochMemory]:
        """Figures of all measured epochs."""
        return self.meter.epochs


class _KerasHooks(_EpochCallback):
    """`model.fit(..., callbacks=[KerasPeakMemory()])`; figures are put into each epoch's logs, in bytes."""

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras' signature
        self.meter.begin_training()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.meter.begin_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        measured = self.meter.end_epoch()
        if measured is not None and logs is not None:
            logs.update({f"memwatch_{name}": float(getattr(measured, name)) for name in _FIGURES})

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        self.meter.end_training()


class _LightningHooks(_EpochCallback):
    """`Trainer(callbacks=[LightningPeakMemory()])`; figures are logged as memwatch/..., in bytes."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's signature
        self.meter.begin_training()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self.meter.begin_epoch(int(trainer.current_epoch))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        measured = self.meter.end_epoch()
        if measured is not None:
            pl_module.log_dict({f"memwatch/{name}": float(getattr(measured, name)) for name in _FIGURES})

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self.meter.end_training()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        self.meter.end_training()


class _TrainerHooks(_EpochCallback):
    """`Trainer(..., callbacks=[TrainerPeakMemory()])`; figures are put into the state's log history, in bytes."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - Trainer's signature
        self.meter.begin_training()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self.meter.begin_epoch(int(state.epoch or 0))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        measured = self.meter.end_epoch()
        if measured is not None:
            figures = {
                f"memwatch_{name}": value for name, value in measured._asdict().items() if name != "epoch"
            }
            state.log_history.append({"epoch": state.epoch, "step": state.global_step, **figures})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self.meter.end_training()


class _FastaiHooks(_EpochCallback):
    """`Learner(..., cbs=FastaiPeakMemory())`: columns "cpu used", "cpu peak", "gpu used", "gpu peak", in MB."""

    learn: Any
    order = -20
    """Before fastai's Recorder (50), which reads the columns' values at the end of an epoch."""

    def __init__(self) -> None:
        super().__init__()
        metric = _framework("fastai.learner", install="fastai").Metric
        column: Any = new_class("_Column", (_FastaiColumn, metric))
        fields = {
            "cpu used": "cpu_used",
            "cpu peak": "cpu_peaked",
            "gpu used": "gpu_used",
            "gpu peak": "gpu_peaked",
        }
        self._columns = [column(self.meter, name, field) for name, field in fields.items()]
        self._trained = False

    def before_fit(self) -> None:
        self.meter.begin_training()
        self._remove_columns()  # a failed fit leaves them
        self._trained = False
        self.learn.metrics = [*self.learn.metrics, *self._columns]

    def before_train(self) -> None:
        """Note that this is a training, not a separate validation."""
        self._trained = True

    def before_validate(self) -> None:
        """Remove the columns of a training, because `learn.validate()` returns the values of all columns."""
        if not self._trained:
            self._remove_columns()
            self.meter.discard()

    def before_epoch(self) -> None:
        self.meter.begin_epoch(int(self.learn.epoch))

    def after_epoch(self) -> None:
        self.meter.end_epoch()

    def after_fit(self) -> None:
        self._remove_columns()
        self.meter.end_training()

    def _remove_columns(self) -> None:
        self.learn.metrics = [metric for metric in self.learn.metrics if metric not in self._columns]
        recorder: Any = getattr(self.learn, "recorder", None)
        if not self._trained and hasattr(recorder, "metric_names"):
            ours = {column.name for column in self._columns}
            recorder.metric_names = [name for name in recorder.metric_names if name not in ours]


class _FastaiColumn:
    """Column of the table of epochs; fastai reads its value after an epoch's validation."""

    def __init__(self, meter: EpochMeter, name: str, field: str) -> None:
        self._meter, self._name, self._field = meter, name, field

    def reset(self) -> None:
        """Nothing is accumulated."""

    def accumulate(self, learn: Any) -> None:
        """Nothing is accumulated."""

    @property
    def value(self) -> int:
        """MB of 2**20 bytes. The first access to any column's value ends the epoch."""
        self._meter.end_epoch()
        return int(getattr(self._meter.epochs[-1], self._field) / _MB) if self._meter.epochs else 0

    @property
    def name(self) -> str:
        return self._name


class _Framework(NamedTuple):
    hooks: type[_EpochCallback]
    modules: tuple[str, ...]
    """Candidates for the module with the framework's callback class; the first installed one counts."""
    base: str
    """Name of that class."""
    install: str
    """Package name for `pip install`."""


_FRAMEWORKS = {
    "FastaiPeakMemory": _Framework(_FastaiHooks, ("fastai.callback.core",), "Callback", "fastai"),
    "KerasPeakMemory": _Framework(
        _KerasHooks, ("keras.callbacks", "tensorflow.keras.callbacks"), "Callback", "keras"
    ),
    "LightningPeakMemory": _Framework(
        _LightningHooks, ("lightning.pytorch", "pytorch_lightning"), "Callback", "lightning"
    ),
    "TrainerPeakMemory": _Framework(_TrainerHooks, ("transformers",), "TrainerCallback", "transformers"),
}


def __getattr__(name: str) -> Any:
    """Create a callback class at the first access, and import its framework only then. Raises `Unavailable`."""
    if name not in _FRAMEWORKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    hooks, modules, base, install = _FRAMEWORKS[name]
    bases = (hooks, getattr(_framework(*modules, install=install), base))
    # The framework's class may have a metaclass. pickle finds the class by its name and module.
    made = new_class(
        name, bases, exec_body=lambda body: body.update(__module__=__name__, __doc__=hooks.__doc__)
    )
    globals()[name] = made
    return made


def _framework(*names: str, install: str) -> Any:
    """Return the first installed one of these modules. Raises `Unavailable` if none is installed."""
    for name in names:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name.partition(".")[0]):
                raise
    raise Unavailable(f"{names[0].partition('.')[0]} is not installed.", f"pip install {install}")
