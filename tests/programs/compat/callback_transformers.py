"""Two epochs with a blip of 50 MiB each, in the real framework."""

import torch
from transformers import Trainer, TrainingArguments

from otel_memwatch.compat.callbacks import TrainerPeakMemory


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        blip = bytearray(50 << 20)
        del blip
        return {"loss": (self.layer(x) - labels).pow(2).mean()}


data = [{"x": torch.ones(4), "labels": torch.ones(1)}] * 8
callback = TrainerPeakMemory()
arguments = TrainingArguments(
    "out",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    report_to=[],
    use_cpu=True,
    save_strategy="no",
    disable_tqdm=True,
    logging_strategy="no",
)
trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[callback])
trainer.train()
assert any(entry.get("memwatch_cpu_peak", 0) > 50 << 20 for entry in trainer.state.log_history)

assert [epoch.epoch for epoch in callback.epochs] == [0, 1], callback.epochs
assert all(epoch.cpu_peaked > 40 << 20 or epoch.cpu_peak > 90 << 20 for epoch in callback.epochs), (
    callback.epochs
)
assert callback.meter._recording is None
