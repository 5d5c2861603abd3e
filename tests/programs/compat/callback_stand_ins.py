"""An epoch with a blip of 50 MiB as each framework calls its callbacks, with stand-ins for the frameworks."""

import pickle
import sys
import types

from tests.support import counters


def stand_in(module: str, **names: object) -> None:
    sys.modules[module] = types.ModuleType(module)
    vars(sys.modules[module]).update(names)


class Meta(type):
    """fastai and others may make the classes of their callbacks in a way of their own."""


class Callback(metaclass=Meta):
    made = False

    def __init__(self) -> None:
        self.made = True

    def on_train_begin(self, *_: object, **__: object) -> None:
        raise AssertionError("the framework's own method does nothing of ours")


class Metric:
    @property
    def value(self) -> int:
        raise NotImplementedError


for package in ("keras", "lightning", "fastai", "fastai.callback"):
    stand_in(package)
stand_in("keras.callbacks", Callback=Callback)
stand_in("lightning.pytorch", Callback=Callback)
stand_in("transformers", TrainerCallback=Callback)
stand_in("fastai.callback.core", Callback=Callback)
stand_in("fastai.learner", Metric=Metric)

from otel_memwatch.compat import callbacks  # noqa: E402
from otel_memwatch.compat.callbacks import (  # noqa: E402
    FastaiPeakMemory,
    KerasPeakMemory,
    LightningPeakMemory,
    TrainerPeakMemory,
)


def blip() -> None:
    held = bytearray(50 << 20)
    del held


def check(callback: object) -> None:
    (epoch,) = callback.epochs
    assert epoch.epoch == 0
    assert 49 << 20 < epoch.cpu_peaked < 51 << 20, epoch
    assert callback.made
    assert isinstance(callback, Callback)
    assert callback.meter._recording is None
    assert type(callback).__doc__
    assert pickle.loads(pickle.dumps(type(callback))) is type(callback)
    assert getattr(callbacks, type(callback).__name__) is type(callback)


keras, logs = KerasPeakMemory(), {}
keras.on_train_begin()
keras.on_epoch_begin(0)
blip()
keras.on_epoch_end(0, logs)
keras.on_train_end()
check(keras)
assert sorted(logs) == [
    "memwatch_cpu_peak",
    "memwatch_cpu_peaked",
    "memwatch_cpu_used",
    "memwatch_gpu_peaked",
    "memwatch_gpu_used",
]
assert logs["memwatch_cpu_peak"] == float(keras.epochs[0].cpu_peak)

lightning, logged = LightningPeakMemory(), {}
trainer, model = types.SimpleNamespace(current_epoch=0), types.SimpleNamespace(log_dict=logged.update)
lightning.on_train_start(trainer, model)
lightning.on_train_epoch_start(trainer, model)
blip()
lightning.on_train_epoch_end(trainer, model)
lightning.on_exception(trainer, model, ValueError())
check(lightning)
assert sorted(logged) == sorted(name.replace("memwatch_", "memwatch/") for name in logs)

peaks = TrainerPeakMemory()
state = types.SimpleNamespace(epoch=0.0, global_step=7, log_history=[])
peaks.on_train_begin(None, state, None, model=None)
peaks.on_epoch_begin(None, state, None, model=None)
blip()
peaks.on_epoch_end(None, state, None, model=None)
peaks.on_train_end(None, state, None, model=None)
check(peaks)
(entry,) = state.log_history
assert (entry["epoch"], entry["step"]) == (0.0, 7)
assert entry["memwatch_certainty"] == counters.of_process(100 << 20)

fastai = FastaiPeakMemory()
fastai.learn = types.SimpleNamespace(metrics=["accuracy"], epoch=0)
fastai.before_fit()
accuracy, *columns = fastai.learn.metrics
assert [column.name for column in columns] == ["cpu used", "cpu peak", "gpu used", "gpu peak"]
assert all(isinstance(column, Metric) for column in columns)
fastai.before_epoch()
blip()
for column in columns:
    column.reset()
    column.accumulate(fastai.learn)
assert [column.value for column in columns][1] in (49, 50)
fastai.after_epoch()
fastai.after_fit()
assert fastai.learn.metrics == ["accuracy"]
check(fastai)

# A fit that fails calls no after_fit; a validation by itself has an epoch around it, and no training.
for _ in range(2):
    fastai.before_fit()
    fastai.before_epoch()
    fastai.before_train()
assert len(fastai.learn.metrics) == 5
fastai.learn.recorder = types.SimpleNamespace(metric_names=["epoch", "accuracy"])
fastai.before_fit()
fastai.learn.recorder.metric_names += [column.name for column in fastai.learn.metrics[1:]]
fastai.before_epoch()
fastai.before_validate()
assert fastai.learn.metrics == ["accuracy"], "learn.validate() gives what it gives without the callback"
assert fastai.learn.recorder.metric_names == ["epoch", "accuracy"]
fastai.after_epoch()
fastai.after_fit()
check(fastai)
