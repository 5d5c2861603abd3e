"""Two epochs with a blip of 50 MiB each, in the real framework."""

import pytorch_lightning as pl
import torch

from otel_memwatch.compat.callbacks import LightningPeakMemory


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        blip = bytearray(50 << 20)
        del blip
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=4)
callback = LightningPeakMemory()
trainer = pl.Trainer(
    max_epochs=2,
    callbacks=[callback],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    accelerator="cpu",
)
trainer.fit(Model(), data)
assert float(trainer.callback_metrics["memwatch/cpu_peak"]) > 50 << 20

assert [epoch.epoch for epoch in callback.epochs] == [0, 1], callback.epochs
assert all(epoch.cpu_peaked > 40 << 20 or epoch.cpu_peak > 90 << 20 for epoch in callback.epochs), (
    callback.epochs
)
assert callback.meter._recording is None
