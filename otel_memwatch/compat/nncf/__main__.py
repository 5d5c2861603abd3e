"""`python -m otel_memwatch.compat.nncf [--log-dir DIR] COMMAND...`."""

from otel_memwatch.compat.nncf.command import main

if __name__ == "__main__":
    main()
