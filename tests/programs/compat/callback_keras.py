"""Two epochs with a blip of 50 MiB each, in the real framework."""

import keras
import numpy as np

from otel_memwatch.compat.callbacks import KerasPeakMemory


class Blip(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        blip = bytearray(50 << 20)
        del blip


model = keras.Sequential([keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
callback = KerasPeakMemory()
history = model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=2, verbose=0, callbacks=[callback, Blip()])
assert min(history.history["memwatch_cpu_peak"]) > 50 << 20

assert [epoch.epoch for epoch in callback.epochs] == [0, 1], callback.epochs
assert all(epoch.cpu_peaked > 40 << 20 or epoch.cpu_peak > 90 << 20 for epoch in callback.epochs), (
    callback.epochs
)
assert callback.meter._recording is None
