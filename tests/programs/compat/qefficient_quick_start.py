"""The quick start of the profiler's document, with a stand-in for QEfficient."""

import sys
import time
import types
from pathlib import Path


class QEFFAutoModelForCausalLM:
    @classmethod
    def from_pretrained(cls, name):
        made = cls()
        made.weights = bytearray(60 << 20)
        return made

    def export(self):
        Path("model.onnx").write_bytes(b"x" * (20 << 20))

    def compile(self, **settings):
        time.sleep(0.2)

    def generate(self, prompts):
        return prompts


module = types.ModuleType("QEfficient")
module.QEFFAutoModelForCausalLM = QEFFAutoModelForCausalLM
sys.modules["QEfficient"] = module

from QEfficient import QEFFAutoModelForCausalLM  # noqa: E402

from otel_memwatch.compat.qefficient import QEffMemoryProfiler  # noqa: E402

# Initialize profiler
profiler = QEffMemoryProfiler(verbose=True)
profiler.start_monitoring()

# Your QEfficient workflow
model = QEFFAutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B-Instruct")
model.export()
model.compile(prefill_seq_len=128, ctx_len=256, num_cores=16)
output = model.generate(prompts=["Hello world"])

# Generate report and visualization
profiler.stop_monitoring()
print(profiler.get_memory_report())
profiler.generate_memory_graph("profile.png")
