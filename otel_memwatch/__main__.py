"""Command line as `python -m otel_memwatch`."""

from otel_memwatch.cli import main

if __name__ == "__main__":
    main()
