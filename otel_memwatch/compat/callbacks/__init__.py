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

from typing import TYPE_CHECKING

from otel_memwatch.runtime import lazy

if TYPE_CHECKING:
    from otel_memwatch.compat.callbacks.epochs import EpochMemory, EpochMeter

__all__ = ["EpochMemory", "EpochMeter"]
# The callbacks are asked for by name: `import *` must not fail for a framework that is not installed.

__getattr__ = lazy.names(
    __name__,
    {
        "EpochMemory": "epochs",
        "EpochMeter": "epochs",
        "FastaiPeakMemory": "fastai_learner",
        "KerasPeakMemory": "keras_model",
        "LightningPeakMemory": "lightning_trainer",
        "TrainerPeakMemory": "transformers_trainer",
    },
)
