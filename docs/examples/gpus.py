"""`gpus`, `best_gpu`: list the visible GPUs, and find the one with the most free memory."""

from otel_memwatch import best_gpu, gpus

for gpu in gpus():
    print(gpu.ordinal, gpu.name, gpu.memory.free if gpu.memory else "unknown")
best = best_gpu()
device = "cpu" if best is None else f"cuda:{best.ordinal}"
