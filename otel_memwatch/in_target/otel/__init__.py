"""Hooks that OpenTelemetry loads in the watched program: spans become operations, exports go to the run directory."""
