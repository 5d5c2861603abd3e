"""Hooks that OpenTelemetry loads in the watched program: spans become operations, and exports go to the run directory."""
