"""A small training script with its phases marked as operations."""

import numpy as np

from otel_memwatch import operation


@operation("Load")
def load() -> np.ndarray:
    return np.random.default_rng(0).random((4_000, 4_000))


@operation("Epoch")
def epoch(data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    with operation("Forward"):
        hidden = np.tanh(data @ weights)
    with operation("Backward"):
        gradient = data.T @ (hidden - data[:, : weights.shape[1]])
    return weights - 1e-4 * gradient


data = load()
weights = np.zeros((4_000, 500))
with operation("Train", epochs=3):
    for _ in range(3):
        weights = epoch(data, weights)
with operation("Export"):
    compressed = (data @ np.ones((4_000, 4_000), dtype=np.float32)).astype(np.float32)
