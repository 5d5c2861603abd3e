"""The OTLP receiver of `--receive-otlp`: socket, server, store, proxy."""
