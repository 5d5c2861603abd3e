"""Two epochs with a blip of 50 MiB each, in the real framework."""

import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner

from otel_memwatch.compat.callbacks import FastaiPeakMemory


class Blip(Callback):
    def after_batch(self):
        blip = bytearray(50 << 20)
        del blip


data = [(torch.ones(4), torch.ones(1))] * 8
loaders = DataLoaders(DataLoader(data, bs=4), DataLoader(data, bs=4))
callback = FastaiPeakMemory()
learner = Learner(
    loaders, torch.nn.Linear(4, 1), loss_func=torch.nn.functional.mse_loss, cbs=[callback, Blip()]
)
learner.fit(2)
names = list(learner.recorder.metric_names)
assert names[3:7] == ["cpu used", "cpu peak", "gpu used", "gpu peak"], names
assert learner.recorder.values[-1][3] >= 45 or learner.recorder.values[0][3] >= 45, learner.recorder.values
assert learner.metrics == [] or not list(learner.metrics)

assert [epoch.epoch for epoch in callback.epochs] == [0, 1], callback.epochs
assert all(epoch.cpu_peaked > 40 << 20 or epoch.cpu_peak > 90 << 20 for epoch in callback.epochs), (
    callback.epochs
)
assert callback.meter._recording is None
