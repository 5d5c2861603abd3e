"""Peak memory of every epoch: the meter alone, and each framework where it is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.compat import callbacks
from otel_memwatch.errors import Unavailable
from tests.support.programs import environment, run_program

MIB = 2**20


def test_the_meter(tmp_path: Path) -> None:
    output = run_program(
        """
        from otel_memwatch.compat.callbacks import EpochMeter
        meter = EpochMeter(report=print)
        assert meter.end_epoch() is None
        meter.begin_training()
        for epoch in range(2):
            meter.begin_epoch(epoch)
            blip = bytearray(60 << 20); del blip
            if epoch: kept = bytearray(30 << 20)
            meter.end_epoch()
            meter.end_epoch()
        meter.begin_epoch(7)
        meter.end_training()
        meter.end_training()
        first, second = meter.epochs
        assert (first.epoch, second.epoch) == (0, 1)
        assert abs(first.cpu_used) < 1 << 20 and 59 << 20 < first.cpu_peaked < 61 << 20, first
        assert 29 << 20 < second.cpu_used < 31 << 20 and 29 << 20 < second.cpu_peaked < 31 << 20, second
        assert first.certainty == "exact" and first.gpu_used == first.gpu_peaked == 0
        import os
        assert os.listdir(".") == ["program.py"], os.listdir(".")
        """,
        tmp_path,
    )
    assert output.splitlines()[0] == "epoch 0: cpu used 0 peaked 60 MB, gpu used 0 peaked 0 MB"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("FastaiPeakMemory", "fastai"),
        ("LightningPeakMemory", "pytorch_lightning"),
        ("KerasPeakMemory", "keras"),
        ("TrainerPeakMemory", "transformers"),
    ],
)
def test_a_framework_that_is_missing_is_told_in_one_sentence(name: str, module: str) -> None:
    if importlib.util.find_spec(module):
        pytest.skip(f"{module} is installed")
    with pytest.raises(Unavailable, match="is not installed"):
        getattr(callbacks, name)


PROGRAMS = {
    "pytorch_lightning": """
        import torch, pytorch_lightning as pl
        from otel_memwatch.compat.callbacks import LightningPeakMemory
        class Model(pl.LightningModule):
            def __init__(self): super().__init__(); self.layer = torch.nn.Linear(4, 1)
            def training_step(self, batch, index):
                blip = bytearray(50 << 20); del blip
                return self.layer(batch[0]).sum()
            def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=4)
        callback = LightningPeakMemory()
        trainer = pl.Trainer(max_epochs=2, callbacks=[callback], logger=False, enable_checkpointing=False,
                             enable_progress_bar=False, accelerator="cpu")
        trainer.fit(Model(), data)
        assert float(trainer.callback_metrics["memwatch/cpu_peak"]) > 50 << 20
    """,
    "keras": """
        import keras, numpy as np
        from otel_memwatch.compat.callbacks import KerasPeakMemory
        class Blip(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None): blip = bytearray(50 << 20); del blip
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        callback = KerasPeakMemory()
        history = model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=2, verbose=0, callbacks=[callback, Blip()])
        assert min(history.history["memwatch_cpu_peak"]) > 50 << 20
    """,
    "transformers": """
        import torch
        from transformers import Trainer, TrainingArguments
        from otel_memwatch.compat.callbacks import TrainerPeakMemory
        class Model(torch.nn.Module):
            def __init__(self): super().__init__(); self.layer = torch.nn.Linear(4, 1)
            def forward(self, x, labels=None):
                blip = bytearray(50 << 20); del blip
                return {"loss": (self.layer(x) - labels).pow(2).mean()}
        data = [{"x": torch.ones(4), "labels": torch.ones(1)}] * 8
        callback = TrainerPeakMemory()
        arguments = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                      save_strategy="no", disable_tqdm=True, logging_strategy="no")
        trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[callback])
        trainer.train()
        assert any(entry.get("memwatch_cpu_peak", 0) > 50 << 20 for entry in trainer.state.log_history)
    """,
    "fastai": """
        import torch
        from fastai.data.core import DataLoaders
        from fastai.data.load import DataLoader
        from fastai.learner import Learner
        from fastai.callback.core import Callback
        from otel_memwatch.compat.callbacks import FastaiPeakMemory
        class Blip(Callback):
            def after_batch(self): blip = bytearray(50 << 20); del blip
        data = [(torch.ones(4), torch.ones(1))] * 8
        loaders = DataLoaders(DataLoader(data, bs=4), DataLoader(data, bs=4))
        callback = FastaiPeakMemory()
        learner = Learner(loaders, torch.nn.Linear(4, 1), loss_func=torch.nn.functional.mse_loss, cbs=[callback, Blip()])
        learner.fit(2)
        names = list(learner.recorder.metric_names)
        assert names[3:7] == ["cpu used", "cpu peak", "gpu used", "gpu peak"], names
        assert learner.recorder.values[-1][3] >= 45 or learner.recorder.values[0][3] >= 45, learner.recorder.values
        assert learner.metrics == [] or not list(learner.metrics)
    """,
}


@pytest.mark.parametrize("module", sorted(PROGRAMS))
def test_in_the_real_framework(module: str, tmp_path: Path) -> None:
    """Where the framework is in this environment, or in the one that OTEL_MEMWATCH_FRAMEWORKS_PYTHON names."""
    named = os.environ.get("OTEL_MEMWATCH_FRAMEWORKS_PYTHON")
    python = named or sys.executable
    variables = environment(HOME=str(tmp_path), KERAS_BACKEND="torch")
    probe = subprocess.run(
        [python, "-c", f"import {module}"], capture_output=True, timeout=240, check=False, env=variables
    )
    if probe.returncode and not named:  # 2 GB: nobody's tests need them unless asked for
        pytest.skip(f"{module} is not installed: pip install {module}")
    program = tmp_path / "program.py"
    checks = """
assert [epoch.epoch for epoch in callback.epochs] == [0, 1], callback.epochs
assert all(epoch.cpu_peaked > 40 << 20 or epoch.cpu_peak > 90 << 20 for epoch in callback.epochs), callback.epochs
assert callback.meter._recording is None
"""
    import textwrap

    program.write_text(textwrap.dedent(PROGRAMS[module]) + checks)
    done = subprocess.run(
        [python, str(program)],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
