"""Peak memory of every epoch, as a callback of fastai 2, PyTorch Lightning, Keras or Hugging Face's Trainer.

Each callback has `epochs`, a list of `EpochMemory`, and is made when it is asked for: none of the frameworks is imported
before. They follow `callbacks.mem.PeakMemMetric` of fastai 1.

    FastaiPeakMemory      learn = Learner(..., cbs=FastaiPeakMemory()): four columns in the table of epochs
    LightningPeakMemory   Trainer(callbacks=[LightningPeakMemory()]): logged as memwatch/cpu_peak ...
    KerasPeakMemory       model.fit(..., callbacks=[KerasPeakMemory()]): in the logs of each epoch
    TrainerPeakMemory     Trainer(..., callbacks=[TrainerPeakMemory()]): in the log history

Works the same:
    used and peaked of CPU and GPU for each epoch, in MB of 2**20 bytes; zeros without a GPU.

Differs, and why:
    * CPU memory is the process's, with all that is not Python's own; before, tracemalloc saw only Python's, slowed the
      training down and ended a tracing of the program's own.
    * Peaks are those of the kernel's and the allocator's watermarks; nothing is polled, no cache is emptied. A GPU's peak
      is exact when it rose in the epoch; `OTEL_MEMWATCH_EXACT_GPU=1` makes it exact always.
    * An epoch is an operation `epoch n` of the run, and a span where OpenTelemetry is configured.

Not supported:
    fastai 1, which does not run on the Pythons of today.
"""

from __future__ import annotations

from importlib import import_module
from types import new_class
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_memwatch.compat.recording import ToolRecording, acquire, release
from otel_memwatch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EpochMemory", "EpochMeter"]
# The callbacks are asked for by name: `import *` must not fail for a framework that is not installed.

_MB = 2**20

_FIGURES = ("cpu_used", "cpu_peak", "cpu_peaked", "gpu_used", "gpu_peaked")
"""Fields of `EpochMemory` that frameworks log."""


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
        self._recording: ToolRecording | None = None
        self._operation: Any = None
        self._epoch = 0

    def begin_training(self) -> None:
        """Before the first epoch."""
        if self._recording is None:
            self._recording = acquire(0.1)

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins; one that was not ended is not reported."""
        from otel_memwatch.in_target.operations import operation

        self.begin_training()
        self.discard()
        self._epoch = epoch
        self._operation = operation(f"epoch {epoch}").__enter__()

    def end_epoch(self) -> EpochMemory | None:
        """The epoch has ended: its figures; `None` when none had begun."""
        if self._operation is None:
            return None
        ended, self._operation = self._operation, None
        ended.__exit__(None, None, None)
        measured = _epoch_memory(self._epoch, ended.figures)
        self.epochs.append(measured)
        if self._report is not None:
            self._report(str(measured))
        return measured

    def discard(self) -> None:
        """Ends the epoch that has begun, and reports nothing of it."""
        if self._operation is not None:
            self._operation.__exit__(None, None, None)
            self._operation = None

    def end_training(self) -> None:
        """After the last epoch, also when it failed."""
        self.discard()
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


class _EpochCallback:
    """What the callbacks of all frameworks have. Their classes are made of one of those below and the framework's own."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = EpochMeter()

    @property
    def epochs(self) -> list[EpochMemory]:
        """What has been measured."""
        return self.meter.epochs


class _KerasHooks(_EpochCallback):
    """`model.fit(..., callbacks=[KerasPeakMemory()])`; figures are put into each epoch's logs, in bytes."""

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
            logs.update({f"memwatch_{name}": float(getattr(measured, name)) for name in _FIGURES})

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """The training has ended."""
        self.meter.end_training()


class _LightningHooks(_EpochCallback):
    """`Trainer(callbacks=[LightningPeakMemory()])`; figures are logged as memwatch/..., in bytes."""

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
            pl_module.log_dict({f"memwatch/{name}": float(getattr(measured, name)) for name in _FIGURES})

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """The training has ended."""
        self.meter.end_training()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """The training has failed."""
        self.meter.end_training()


class _TrainerHooks(_EpochCallback):
    """`Trainer(..., callbacks=[TrainerPeakMemory()])`; figures are put into the state's log history, in bytes."""

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


class _FastaiHooks(_EpochCallback):
    """`Learner(..., cbs=FastaiPeakMemory())`: columns "cpu used", "cpu peak", "gpu used", "gpu peak", in MB."""

    learn: Any
    order = -20
    """Before fastai's Recorder (50), which asks the columns for their values at the end of an epoch."""

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
        """The training begins."""
        self.meter.begin_training()
        self._remove_columns()  # a fit that failed has left them
        self._trained = False
        self.learn.metrics = [*self.learn.metrics, *self._columns]

    def before_train(self) -> None:
        """It is a training, and no validation by itself."""
        self._trained = True

    def before_validate(self) -> None:
        """`learn.validate()` gives the values of all columns: those of a training have no place there."""
        if not self._trained:
            self._remove_columns()
            self.meter.discard()

    def before_epoch(self) -> None:
        """An epoch begins."""
        self.meter.begin_epoch(int(self.learn.epoch))

    def after_epoch(self) -> None:
        """An epoch has ended."""
        self.meter.end_epoch()

    def after_fit(self) -> None:
        """The training has ended."""
        self._remove_columns()
        self.meter.end_training()

    def _remove_columns(self) -> None:
        self.learn.metrics = [metric for metric in self.learn.metrics if metric not in self._columns]
        recorder: Any = getattr(self.learn, "recorder", None)
        if not self._trained and hasattr(recorder, "metric_names"):
            ours = {column.name for column in self._columns}
            recorder.metric_names = [name for name in recorder.metric_names if name not in ours]


class _FastaiColumn:
    """One column; fastai asks for its value when an epoch's validation has ended."""

    def __init__(self, meter: EpochMeter, name: str, field: str) -> None:
        self._meter, self._name, self._field = meter, name, field

    def reset(self) -> None:
        """Nothing is accumulated."""

    def accumulate(self, learn: Any) -> None:
        """Nothing is accumulated."""

    @property
    def value(self) -> int:
        """MB of 2**20 bytes. The first column that is asked ends the epoch."""
        self._meter.end_epoch()
        return int(getattr(self._meter.epochs[-1], self._field) / _MB) if self._meter.epochs else 0

    @property
    def name(self) -> str:
        """Heading."""
        return self._name


class _Framework(NamedTuple):
    hooks: type[_EpochCallback]
    modules: tuple[str, ...]
    """The first of them that is installed has the framework's own class of callbacks."""
    base: str
    """Name of that class."""
    install: str
    """What `pip install` is given."""


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
    """Makes a callback's class when it is asked for: only then its framework is imported. Raises `Unavailable`."""
    if name not in _FRAMEWORKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    hooks, modules, base, install = _FRAMEWORKS[name]
    bases = (hooks, getattr(_framework(*modules, install=install), base))
    # The framework's class may have a metaclass of its own. Name and module are those by which it is pickled.
    made = new_class(
        name, bases, exec_body=lambda body: body.update(__module__=__name__, __doc__=hooks.__doc__)
    )
    globals()[name] = made
    return made


def _framework(*names: str, install: str) -> Any:
    """The first of these modules that is installed. Raises `Unavailable` when none is."""
    for name in names:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name.partition(".")[0]):
                raise
    raise Unavailable(f"{names[0].partition('.')[0]} is not installed.", f"pip install {install}")
