"""Directory for PYTHONPATH."""
