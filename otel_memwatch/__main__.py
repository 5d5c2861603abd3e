"""`python -m otel_memwatch`: the command line."""

from otel_memwatch.cli import main

if __name__ == "__main__":
    main()
