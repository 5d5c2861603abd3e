"""Snapshots of PyTorch's CUDA allocator (`--torch-snapshot`).

Under `wrap`, `site/` is on PYTHONPATH: each Python of the run loads its `sitecustomize`, then `finder`, and `snapshots`
once the program has imported torch. None of them imports this package, which the program's Python may not have.
"""
